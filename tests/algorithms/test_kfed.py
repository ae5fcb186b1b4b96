"""k-FED piece by piece, by hand; what it never sends; its limits."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms import kfed
from fedclust.core.site_interface import View
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source


def answered(X, count, least=2, seed=0):
    X = np.asarray(X, float)
    turn = HandlerContext(SiteData("p", open_source(X, site="p")), (0, 1), {})
    view = View(np.full(X.shape[1], 12, np.int32))
    return kfed.device_centers.answer(turn, kfed.DeviceQuestion(view, count, least, seed)).centers


def groups(seed=0, rows=40, width=3, count=3):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(count, width)) * 30
    return centers[np.arange(rows) % count] + rng.normal(size=(rows, width))


def test_projection_keeps_the_first_singular_directions_without_centring():
    X = np.array([[3.0, 4.0], [6.0, 8.0], [-0.8, 0.6]])  # along (.6, .8), and one row across it
    seen = kfed.singular_projection(X, 1)
    assert seen.ravel() == pytest.approx([5, 10, 0])


def test_fewer_columns_than_clusters_need_no_projection():
    X = np.arange(12.0).reshape(6, 2)
    assert kfed.singular_projection(X, 2) is X
    assert len(answered(groups(width=1, count=3), 3)) == 3


def test_the_one_to_three_rule_leaves_out_rows_between_two_centres():
    # The row at 4 goes with 0..1, but is not three times nearer to their centre than to the one at 10.
    X = np.array([[0.0], [1.0], [0.0], [1.0], [4.0], [10.0], [11.0], [10.0], [11.0]])
    found = kfed.trusted_means(X, 2, np.random.default_rng(0))
    assert np.sort(found.ravel()) == pytest.approx([0.5, 10.5])


def test_lloyd_ends_where_nothing_moves():
    X = np.array([[0.0], [2.0], [9.0], [11.0]])
    assert kfed.lloyd(X, np.array([[0.0], [9.0], [50.0]])).ravel().tolist() == [1, 10]


def test_a_cluster_too_small_joins_the_nearest():
    X = np.array([[0.0], [1.0], [3.0], [10.0], [11.0]])
    labels = kfed.merge_small_clusters(X, np.array([[0.5], [3.0], [10.5]]), 2)
    assert labels.tolist() == [0, 0, 0, 1, 1]
    assert kfed.merge_small_clusters(X, np.array([[0.5], [10.5]]), 6) is None


def test_farthest_first_by_hand():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0], [0.0, 8.0]])
    # The mean is (2.75, 2); nearest to it is (1, 0); then (10, 0), then (0, 8).
    assert kfed.farthest_first(points, 3).tolist() == [[1, 0], [10, 0], [0, 8]]


@pytest.mark.parametrize("seed", range(5))
def test_no_row_leaves_and_no_centre_of_one_row(seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([groups(seed), rng.normal(size=(3, 3)) * 1000])  # three rows far from all
    sent = answered(X, 6, seed=seed)
    assert len(sent)
    assert not kfed.is_row(sent, X).any()
    # Each far row alone would be a centre of its own.
    assert all(min(np.abs(sent - far).sum(axis=1)) > 1 for far in X[-3:])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_site_with_no_more_rows_than_clusters_sends_none(rows):
    assert answered(groups()[:rows], 3).shape == (0, 3)


def test_rows_all_alike_are_not_sent():
    assert answered(np.full((20, 2), 3.25), 3).shape == (0, 2)


def test_a_run_says_who_sent_none_and_who_sent_fewer():
    X = groups(rows=60)
    fed = fc.Federation.local({"a": X[:30], "b": X[30:57], "tiny": X[57:], "alike": np.full((9, 3), 2.5)})
    model = fc.KFed(3).fit(fed)
    assert "2 of 4 sites sent no centre, because they have too few rows or all their rows are equal." in model.notes_
    assert fc.agreement.ari(model.predict(X), np.arange(60) % 3) == 1
    few = fc.KFed(3, min_rows=12).fit(fc.Federation.local({"a": X[:30], "b": X[30:]}))
    assert any(note.startswith("2 of 2 sites sent fewer than 3 centres") for note in few.notes_)


def test_where_nobody_can_send_a_centre_the_run_ends_in_a_sentence():
    alike = fc.Federation.local({"a": np.full((9, 2), 2.5), "b": np.full((9, 2), 1.5)})
    with pytest.raises(fc.DataError, match="no site could send a centre"):
        fc.KFed(2).fit(alike)


def test_too_few_different_centres_are_filled_up_and_said():
    X = np.concatenate([np.full((10, 2), 1.0), np.full((10, 2), 7.0)]) + np.tile([[0.0, 0.1], [0.1, 0.0]], (10, 1))
    model = fc.KFed(4, local_clusters=2).fit(fc.Federation.local({"a": X}))
    assert np.isfinite(model.cluster_centers_).all()
    assert "Only 2 different centres were found; the other 2 were drawn at random." in model.notes_


def test_clusters_that_no_site_holds_all_of_are_found():
    X, y = groups(rows=240, count=6, width=8), np.arange(240) % 6
    parts = {f"p{i}": X[np.isin(y, [i, (i + 1) % 6])] for i in range(6)}
    model = fc.KFed(6, local_clusters=2).fit(fc.Federation.local(parts))
    assert fc.agreement.ari(model.predict(X), y) == 1


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
@pytest.mark.parametrize("policy", ["standard", "datashield"])
def test_policies_that_let_points_leave_let_the_run_end(policy, aggregation):
    rng = np.random.default_rng(0)
    held = {f"s{i}": rng.normal(size=(80, 2)) + 8 * rng.integers(0, 3, size=(80, 1)) for i in range(4)}
    model = fc.KFed(3).fit(fc.Federation.local(held, policy=policy, aggregation=aggregation))
    assert (model.cluster_centers_ == fc.KFed(3).fit(fc.Federation.local(held)).cluster_centers_).all()


@pytest.mark.parametrize("copies", [3, 11, 100, 1000])
def test_rows_alike_are_not_sent_whatever_rounding_makes_of_their_mean(copies):
    one = np.array([[0.1, 0.7, 1 / 3]])
    assert answered(np.tile(one, (copies, 1)), 2).shape == (0, 3)
    sent = answered(np.concatenate([np.tile(one, (copies, 1)), groups(rows=30) + 500]), 4)
    assert len(sent)
    assert np.abs(sent - one).max(axis=1).min() > 1
