"""Sums that parties may leave are killed at every message, every record and every key that is kept."""

import os

import numpy as np
import pytest

import fedclust as fc
from fedclust.testing.faulty_engines import Faulty
from reaping import Killed, nothing_hidden_twice, reaped

RNG = np.random.default_rng(3)
PARTS = {f"p{i}": RNG.normal(size=(8, 1)) + 5 * (np.arange(8) % 2)[:, None] for i in range(4)}


def fit(folder, *, without=None):
    with fc.Federation.local(PARTS, aggregation="secure", run=folder) as fed:
        if without:
            fed.use_engine(Faulty(fed.engine, lambda step, party: "silent" if party == without and step >= 3 else None))
        model = fc.KMeans(2, init=[[0.0], [5.0]], bounds=(-9, 9), max_iter=1, quorum=0.75)
        return model.fit(fed).cluster_centers_.tobytes()


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("without", [None, "p2"])
def test_killed_anywhere_a_recoverable_sum_is_opened_once_and_alike(every, without, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    nothing_hidden_twice(monkeypatch)
    with monkeypatch.context() as patch:
        reaper = reaped(patch, None)
        expected = fit(tmp_path / "whole", without=without)
    assert reaper.passed > 200
    for at in range(1, reaper.passed + 1, every):
        folder = tmp_path / f"run-{at}"
        with monkeypatch.context() as patch:
            reaped(patch, at)
            with pytest.raises(Killed):
                fit(folder, without=without)
        assert fit(folder, without=without) == expected, f"killed at place {at} of {reaper.passed}"
