"""The benchmark `resonance_nets`: whole fits are held to the floors, and sets that are not at hand are a failure."""

import json

import numpy as np
import pytest

from benchmarks import resonance_nets


@pytest.fixture
def small(monkeypatch, tmp_path):
    """One set of 200 rows, in a data folder that is empty at first."""
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(resonance_nets.fc.datasets.loading, "KEEL_FILES", {})
    monkeypatch.setattr(resonance_nets.fc.datasets.loading, "OPENML_SETS", {})
    monkeypatch.setattr(resonance_nets, "PUBLISHED", {"skin_segmentation": (200, 2, 3.5, 1e-3)})
    monkeypatch.setattr(resonance_nets, "SHAPES", {"skin_segmentation": (300, 3, 2)})
    monkeypatch.setattr(resonance_nets, "WHOLE", {"skin_segmentation": (2, None), "fashion_mnist": (2, None)})
    return tmp_path


def put(folder, name):
    rng = np.random.default_rng(0)
    np.savez(folder / f"{name}.npz", X=rng.normal(size=(300, 3)), y=np.arange(300) % 2, classes=["a", "b"])


def test_without_the_sets_it_fails_and_says_which(small, capsys):
    assert resonance_nets.main(json=True) == 1
    told = capsys.readouterr().err
    assert (
        "missed: skin_segmentation 200x3, 2 parties, random rows of the same shape: the data set was not found" in told
    )
    assert "data set 'fashion_mnist' is neither in" in told


def test_with_the_sets_whole_fits_are_judged(small, capsys, monkeypatch):
    put(small, "skin_segmentation")
    put(small, "fashion_mnist")
    assert resonance_nets.main(json=True) == 0
    row = json.loads(capsys.readouterr().out)["sets"][0]
    assert row["authors / whole fit"] == pytest.approx(3.5 / row["whole fit s"])
    assert row["whole fit s"] > row["nets alone s"]
    monkeypatch.setattr(resonance_nets, "PUBLISHED", {"skin_segmentation": (200, 2, 3.5, 1e9)})
    assert resonance_nets.main(json=True) == 1
    assert "times the authors' speed, at least" in capsys.readouterr().err
