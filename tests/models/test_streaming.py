"""Batches: by hand, over sites, and against a fit of everything at once."""

import numpy as np
import pytest

import fedclust as fc


def rows(seed=0, count=120):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3)) + np.repeat(np.array([[0, 0, 0], [9, 0, 9], [0, 9, 9]]), count // 3, axis=0)
    return X[rng.permutation(count)]


def federation(X, parties=3, **options):
    return fc.Federation.local({f"p{i}": part for i, part in enumerate(np.array_split(X, parties))}, **options)


KINDS = [fc.KMeans(3), fc.FuzzyCMeans(3), fc.FuzzyCMeans(3, m=1.6, scale="standardise"), fc.KMeans(3, missing="drop")]


def fresh(model, **options):
    return type(model)(**{**model.get_params(), **options})


def same(a, b):
    return (
        np.array_equal(a.cluster_centers_, b.cluster_centers_)
        and np.array_equal(a.cluster_sizes_, b.cluster_sizes_)
        and a.final_objective == b.final_objective
        and a.history_ == b.history_
    )


def test_a_batch_by_hand():
    model = fc.KMeans(2, init=[[0.0], [10.0]]).partial_fit(np.array([[0.0], [1.0], [2.0], [9.0], [11.0]]))
    assert model.cluster_centers_.ravel().tolist() == [1, 10]
    model.partial_fit(np.array([[5.0], [13.0]]))
    # 5 joins the three rows around 1: (3 * 1 + 5) / 4; 13 joins the two around 10: (2 * 10 + 13) / 3.
    assert model.cluster_centers_.ravel().tolist() == [2, 11]
    assert model.cluster_sizes_.tolist() == [4, 3]
    assert model.final_objective == 9 + 4  # of the batch


def test_memberships_of_a_batch_are_found_anew_in_each_round():
    model = fc.KMeans(2, init=[[0.0], [10.0]]).partial_fit(np.array([[0.0], [10.0]]))
    model.partial_fit(np.array([[4.0], [4.0], [4.5], [5.4]]))
    # At first 5.4 is nearer to 10; then the lower centre is at 12.5 / 4 = 3.125, and 5.4 is nearer to that one than to
    # 7.7; with it, the centres are 17.9 / 5 and 10.
    assert model.cluster_centers_.ravel() == pytest.approx([17.9 / 5, 10])


@pytest.mark.parametrize("model", KINDS)
def test_the_first_batch_is_a_fit(model):
    X = rows()
    assert same(fresh(model).partial_fit(federation(X)), fresh(model).fit(federation(X)))


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
@pytest.mark.parametrize("model", KINDS)
def test_batches_over_sites_are_batches_of_the_pooled_rows_bit_for_bit(model, aggregation):
    batches = [rows(seed) for seed in range(4)]
    federated, pooled = fresh(model, init="box"), fresh(model, init="box")
    for at, batch in enumerate(batches):
        federated.partial_fit(federation(batch, parties=3 + at, aggregation=aggregation))
        pooled.partial_fit(batch[::-1])
    assert same(federated, pooled)


@pytest.mark.parametrize("model", KINDS)
def test_batches_end_near_a_fit_of_everything(model):
    batches = [rows(seed) for seed in range(5)]
    batched = fresh(model)
    for batch in batches:
        batched.partial_fit(federation(batch))
    whole = fresh(model).fit(np.concatenate(batches))
    assert fc.agreement.displacement(batched.cluster_centers_, whole.cluster_centers_) < 0.05
    assert batched.cluster_sizes_.sum() == pytest.approx(whole.cluster_sizes_.sum(), rel=0.02)
    assert any(note.startswith("The model was updated with a further batch") for note in batched.notes_)
    assert not any(note.startswith("Not lossless") for note in batched.notes_)


def test_a_cluster_that_a_batch_lacks_stays_where_it_was():
    X = rows()
    model = fc.KMeans(3).partial_fit(X)
    before = model.cluster_centers_.copy()
    gone = model.labels_[0]
    model.partial_fit(X[model.predict(X) != gone] + 0.5)
    assert np.array_equal(model.cluster_centers_[gone], before[gone])
    assert (model.cluster_centers_ != before).any(axis=1).sum() == 2


def test_keep_decides_how_much_the_past_weighs():
    first, second = np.array([[0.0], [0.0], [10.0], [10.0]]), np.array([[2.0], [2.0], [12.0], [12.0]])
    found = {}
    for keep in (1.0, 0.5, 0.0):
        model = fc.KMeans(2, init=[[0.0], [10.0]]).partial_fit(first).partial_fit(second, keep=keep)
        found[keep] = (model.cluster_centers_.ravel().tolist(), model.cluster_sizes_.tolist())
    # Two rows at 0 and two at 2: their mean, then with the past at half its weight, then without it.
    assert found[1.0] == ([1, 11], [4, 4])
    assert found[0.5] == (pytest.approx([4 / 3, 34 / 3]), [3, 3])
    assert found[0.0] == ([2, 12], [2, 2])


def test_a_saved_model_goes_on_as_if_it_had_not_been_saved(tmp_path):
    model = fc.FuzzyCMeans(3, scale="standardise").partial_fit(rows(0))
    again = fc.load(model.save(tmp_path / "model.json"))
    assert same(again.partial_fit(rows(1)), model.partial_fit(rows(1)))


def test_a_fit_begins_anew():
    X = rows(1)
    assert same(fc.KMeans(3).partial_fit(rows(0)).fit(X), fc.KMeans(3).fit(X))


def test_a_batch_of_one_row_is_welcome_and_an_odd_one_is_not():
    model = fc.KMeans(3).partial_fit(rows())
    assert model.partial_fit(rows(1)[:1]).cluster_sizes_.sum() == 121
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(rows()[:, :2])
    with pytest.raises(fc.DataError, match="columns differ from those of the first batch"):
        model.partial_fit(fc.Federation.local({"a": rows()}, columns=["x", "y", "z"]))
    with pytest.raises(fc.StudyError, match="'keep' is 2"):
        model.partial_fit(rows(), keep=2)
    with pytest.raises(fc.StudyError, match="works on row splits only"):
        fc.KMeans(3).partial_fit(fc.Federation.local({"a": rows()[:, :1], "b": rows()[:, 1:]}, split="columns"))


def test_methods_that_average_take_no_batches():
    assert hasattr(fc.FuzzyCMeans(), "partial_fit")
    assert not hasattr(fc.AveragedFuzzyCMeans(), "partial_fit")
    assert not hasattr(fc.GradientFuzzyCMeans(), "partial_fit")
    assert not hasattr(fc.GaussianMixture(), "partial_fit")
