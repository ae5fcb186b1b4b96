"""Parties of one process: threads that take whole parties change nothing but the time."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fedclust as fc
from fedclust import kernels
from fedclust.federation.aggregation import EnrolledSites
from fedclust.kernels import _threads
from fedclust.privacy.keys import Identity


@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_threads_over_parties_give_the_same_bits(kind):
    rng = np.random.default_rng(0)
    sites = {f"p{i}": rng.normal(size=(9000 + i, 8)) for i in range(6)}
    start = rng.normal(size=(4, 8))
    before, found = kernels.threads(), []
    try:
        for count in (1, 2):
            kernels.set_threads(count)
            fed = fc.Federation.local(sites)
            model = kind(4, init=start, max_iter=4).fit(fed)
            calls = dict.fromkeys(fed.parties)
            found.append((fed.engine._should_use_threads(calls), model.cluster_centers_, model.final_objective))
    finally:
        kernels.set_threads(before)
    assert [shared for shared, *_ in found] == [False, True]
    assert np.array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_a_thread_alone_does_its_sweeps_by_itself():
    with _threads.single_threaded():
        assert kernels.threads() == 1


@pytest.mark.parametrize("kept", [False, True])
def test_sites_that_are_asked_side_by_side_have_one_key_each(kept, tmp_path, monkeypatch):
    plain, parties = Identity.new, [f"p{i}" for i in range(8)]
    monkeypatch.setattr(Identity, "new", lambda: (time.sleep(0.002), plain())[1])
    enrolled = EnrolledSites(parties, tmp_path if kept else None)
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(parties, pool.map(enrolled.vaults_for, parties), strict=True))
    assert all(found[party] is enrolled.vaults_for(party) for party in parties)
