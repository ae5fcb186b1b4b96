"""Deep embedded clustering: formulas by hand, clusters that are there are found, the stop test means what it says."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedclust as fc
from fedclust.algorithms import dec

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'fedclust[deep]'")
torch.set_num_threads(1)
QUICK = dec.DecSchedule(layer_steps=60, fine_steps=200, refresh=20, steps=100, restarts=2)


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    some = np.isin(data.target, [0, 1, 4, 6])
    return data.data[some][:400] / 16, data.target[some][:400]


def test_memberships_follow_students_t():
    # Distances 0 and 2: 1 / (1 + 0) and 1 / (1 + 4), so 5/6 and 1/6.
    assert np.allclose(
        dec.soft_memberships(np.array([[1.0, 1.0]]), np.array([[1.0, 1.0], [1.0, 3.0]])), [[5 / 6, 1 / 6]]
    )


def test_targets_are_squares_over_column_sums():
    q = np.array([[0.5, 0.5], [0.9, 0.1]])
    # Columns sum to 1.4 and .6: first row .25/1.4 and .25/.6, second .81/1.4 and .01/.6, each divided by its sum.
    first, second = np.array([0.25 / 1.4, 0.25 / 0.6]), np.array([0.81 / 1.4, 0.01 / 0.6])
    assert np.allclose(dec.target_memberships(q), [first / first.sum(), second / second.sum()])


def test_digits_are_told_apart(digits):
    X, y = digits
    found = dec.fit(X, 4, schedule=QUICK, encoder=(50, 50, 100, 10))
    assert fc.agreement.accuracy(found.labels, y) > 0.95  # k-means on the rows: .90
    assert np.array_equal(found.memberships(X).argmax(axis=1), found.labels)


def test_several_numbers_of_clusters_share_one_pretraining_and_nothing_else(digits):
    X, _ = digits
    how = dec.DecSchedule(10, 20, refresh=10, steps=20, restarts=1)
    both = dec.fit_each(X, (2, 3), schedule=how, encoder=(20, 3))
    alone = dec.fit(X, 3, schedule=how, encoder=(20, 3))
    assert np.array_equal(both[3].labels, alone.labels)
    assert both[3].centers.tobytes() == alone.centers.tobytes()
    assert not np.array_equal(both[2].layers[0], both[3].layers[0])


def test_refinement_stops_when_almost_no_row_changes_its_cluster(digits):
    X, _ = digits
    anything = dec.fit(
        X, 4, schedule=dec.DecSchedule(5, 5, refresh=5, steps=50, tolerance=1.1, restarts=1), encoder=(20, 3)
    )
    assert anything.settled
    assert anything.steps == 5  # at the first refresh after the first look
    never = dec.fit(
        X, 4, schedule=dec.DecSchedule(5, 5, refresh=5, steps=23, tolerance=0.0, restarts=1), encoder=(20, 3)
    )
    assert not never.settled
    assert never.steps == 23


def test_the_same_seed_gives_the_same_encoder_whatever_torchs_own_seed_is(digits):
    X, _ = digits
    how = dec.DecSchedule(5, 5, refresh=5, steps=10, restarts=1)
    torch.manual_seed(1)
    first = dec.fit(X, 3, schedule=how, encoder=(8, 3), seed=4)
    torch.manual_seed(2)
    second = dec.fit(X, 3, schedule=how, encoder=(8, 3), seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(first.layers, second.layers, strict=True))
    assert np.array_equal(first.centers, second.centers)


def test_the_estimator_says_if_it_did_not_settle_and_is_saved_whole(digits, tmp_path):
    X, _ = digits
    model = fc.DEC(3, encoder=(8, 3), layer_steps=5, fine_steps=5, refresh=5, max_steps=5, tolerance=0.0).fit(X)
    assert model.notes_ == ["Stopped after 5 steps, before the clusters stopped changing."]
    again = fc.load(model.save(tmp_path / "dec.json"))
    assert np.array_equal(again.predict(X), model.labels_)


def test_rows_of_several_sites_are_refused():
    fed = fc.Federation.local({"a": np.zeros((4, 2)), "b": np.zeros((4, 2))})
    with pytest.raises(fc.StudyError, match="use FedCRef"):
        fc.DEC(2).fit(fed)


def test_more_clusters_than_rows_are_refused():
    with pytest.raises(fc.DataError, match="n_clusters is 4, but the table has only 3 rows"):
        dec.fit(np.zeros((3, 2)), 4)
