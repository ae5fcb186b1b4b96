"""The tags of rows: points that equal rows by chance do not count, and rows that really follow from sums all do."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.analysis import describe
from fedclust.app.audit.recovered_rows import all_cells
from fedclust.app.audit.row_tags import RowTags
from fedclust.app.audit.shown_rows import listen_to_sums
from fedclust.privacy.attacks.cell_differences import rows_by_differences


def listen_to_study(X, opening, *, k=None, seed=0):
    fed = fc.Federation.local({f"s{i}": part for i, part in enumerate(np.array_split(X, 3))}, aggregation="secure")
    listened = listen_to_sums(fed)
    model = fc.KMeans(k or 2, opening=opening, scale="standardise", random_state=seed)
    if k is None:
        selection = fc.select_k(model, fed, range(2, 5))
        describe(selection.model, fed, selection)
    else:
        describe(model.fit(fed), fed)
    return listened.opened


def rows_with_and_without_tags(opened, X):
    tags = RowTags.draw(X)
    cells = all_cells(opened.seen, opened.groups, tags)
    return rows_by_differences(cells, X, tags.tags), rows_by_differences(cells, X), cells


@pytest.mark.parametrize("k", [5, None])
@pytest.mark.parametrize("opening", ["exact", "floored"])
def test_every_cell_has_its_rows_tag_and_no_row_that_follows_is_lost(opening, k):
    # Among real numbers no difference equals a row by chance, so tags must not change the result.
    X = np.random.default_rng(4).normal(size=(300, 3))
    checked, plain, cells = rows_with_and_without_tags(listen_to_study(X, opening, k=k), X)
    assert all(own.tags is not None and own.tags.known.all() for own in cells)
    assert checked.tolist() == plain.tolist()
    assert plain.any() == (opening == "exact")


def test_whole_numbers_that_equal_a_difference_by_chance_are_no_recovered_rows():
    X = np.rint(np.random.default_rng(0).gamma(2, 15, 400))[:, None]
    checked, plain, _ = rows_with_and_without_tags(listen_to_study(X, "floored"), X)
    assert plain.sum() > 100
    assert not checked.any()


def test_equal_rows_have_one_tag():
    # The cells {1, 2} and {2} show 1, whichever of the two rows of 2 they hold.
    tags = RowTags.draw(np.array([[2.0], [1.0], [2.0], [3.0]]))
    assert tags.tags[0] == tags.tags[2]
    assert len(set(tags.tags.tolist())) == 3


def test_a_cell_that_has_other_rows_than_those_at_hand_is_compared_by_its_sums():
    X = np.random.default_rng(4).normal(size=(300, 3))
    opened = listen_to_study(X, "exact", k=5)
    tags = RowTags.draw(X[:290])
    assert not any(own.tags.known.all() for own in all_cells(opened.seen, (), tags)[:-1] if own.tags is not None)
