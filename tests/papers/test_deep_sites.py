"""Populations for experiments: what is asked for is what is dealt, and no row is used up twice."""

import gzip

import numpy as np
import pytest

import fedclust as fc
from fedclust.datasets.loading import Dataset
from papers import deep_sites as deep

Y = np.repeat(np.arange(10), 400)


def test_sites_hold_the_classes_and_rows_asked_for():
    found = deep.populate(Y, 12, per_class=30, seed=1)
    for party, rows in found.rows.items():
        classes, counts = np.unique(Y[rows], return_counts=True)
        assert 2 <= len(classes) <= 5
        assert (counts == 30).all()
        assert (found.classes[party] == Y[rows]).all()
        assert fc.agreement.accuracy(found.start[party], found.classes[party]) == 1.0
    every = np.concatenate(list(found.rows.values()))
    assert len(np.unique(every)) == len(every)


def test_overlap_is_the_share_of_rows_that_all_holders_of_a_class_have():
    found = deep.populate(Y, 8, classes=(3, 3), per_class=40, overlap=0.3, seed=2)
    by_class = {}
    for party, rows in found.rows.items():
        for label in np.unique(found.classes[party]):
            by_class.setdefault(label, []).append(set(rows[found.classes[party] == label]))
    for held in by_class.values():
        for one in held[1:]:
            assert len(held[0] & one) == 12
            assert len(one) == 40


def test_dirt_moves_a_share_of_rows_evenly_to_the_others():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 5000)
    moved = deep.spoilt(labels, 4, 0.3, rng)
    assert abs((moved != labels).mean() - 0.3) < 0.01
    assert np.abs(np.bincount((moved - labels) % 4)[1:] / len(labels) - 0.1).max() < 0.01
    assert (deep.spoilt(np.zeros(5, int), 1, 0.5, rng) == 0).all()


def test_running_out_of_rows_is_an_error_that_names_the_class():
    with pytest.raises(fc.DataError, match=r"class \d has 400 rows, too few for 40 sites"):
        deep.populate(Y, 40, per_class=100)


@pytest.mark.parametrize("options", [{"classes": (0, 2)}, {"classes": (2, 11)}, {"overlap": 2}, {"dirt": -1}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(fc.StudyError):
        deep.populate(Y, 3, **options)


def test_what_there_is_to_find_is_what_two_sites_hold():
    y = np.repeat(np.arange(3), 10)
    assert deep.Population({}, {"a": y[:20], "b": y[10:]}, {}).shared_classes == 1


@pytest.mark.parametrize("name", ["emnist_digits", "kuzushiji49"])
def test_a_set_that_must_be_fetched_says_how(name, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(fc.DataError, match=r"and the two test files and put the files into the folder .FEDCLUST_DATA"):
        deep.images(name)


def idx(values):
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def test_emnist_is_read_from_its_own_files_and_stands_upright(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    image = np.arange(6).reshape(1, 2, 3)  # kept by columns: the upright image is its transpose
    for part, packed in (("train", True), ("test", False)):
        for kind, values in (("images-idx3", image), ("labels-idx1", np.array([7 if packed else 2]))):
            path = tmp_path / f"emnist-digits-{part}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(idx(values)) if packed else idx(values))
    found = deep.images("emnist_digits")
    assert found.X.tolist() == [[0, 3, 1, 4, 2, 5]] * 2
    assert found.y.tolist() == [7, 2]
    (tmp_path / "emnist-digits-test-labels-idx1-ubyte").write_bytes(b"nothing")
    with pytest.raises(fc.DataError, match="damaged"):
        deep.images("emnist_digits")


def test_kuzushiji_is_read_from_its_own_files(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    y = np.concatenate([np.arange(49), np.arange(31)])  # the first 31 classes have two rows
    for part, some in (("train", y[:60]), ("test", y[60:])):
        np.savez(tmp_path / f"k49-{part}-imgs.npz", np.tile(some[:, None, None], (1, 2, 2)).astype(np.uint8))
        np.savez(tmp_path / f"k49-{part}-labels.npz", some.astype(np.uint8))
    found = deep.images("kuzushiji49")
    assert found.X.shape == (62, 4)
    assert (found.X[:, 0] == found.y).all()
    assert len(found.classes) == 31


def test_kuzushiji_keeps_its_31_largest_classes():
    counts = np.where(np.arange(49) % 3 == 0, 2, 6)
    y = np.repeat(np.arange(49), counts)
    found = deep._common(Dataset("kuzushiji49", np.arange(len(y))[:, None], y, tuple(map(str, range(49))), ("x",)))
    assert len(found.classes) == 31
    assert (np.bincount(found.y) == 6).all()
    assert found.classes[:4] == ("1", "2", "4", "5")
