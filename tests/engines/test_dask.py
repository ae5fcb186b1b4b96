"""Parties, or the rows of one of them, at the workers of a Dask cluster: the bits of one process."""

import os
import signal

import numpy as np
import pytest

pytest.importorskip("distributed", reason="an extra; make test-engines installs it")

import distributed
from test_rounds import grown

from fedclust import Federation, FuzzyCMeans, KMeans, SummaryClustering, select_k
from fedclust.core.errors import QuorumLost
from fedclust.engines.attendance import ignore_event
from fedclust.engines.dask_cluster import DaskEngine, DistributedSiteServer
from fedclust.engines.local_engine import LocalEngine
from fedclust.engines.run_status import ObservedEngine
from fedclust.federation.local_sites import LocalSites
from fedclust.site.policy import find_policy
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source
from fedclust.testing.conformance import make_sites

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def on_cluster(client, parts, **options):
    fed = Federation.local(parts, **options)
    fed.engine = DaskEngine(client, fed.local_sites, seed=fed.seed)
    fed.local_sites = LocalSites()
    fed.use_engine(fed.engine)
    return fed


def same(a, b):
    return (
        np.array_equal(a.cluster_centers_, b.cluster_centers_)
        and a.final_objective == b.final_objective
        and a.history_ == b.history_
    )


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_parties_on_a_cluster_find_the_bits_of_one_process(client, aggregation):
    def chosen(fed):
        model = FuzzyCMeans(scale="standardise", random_state=0, max_iter=10)
        return select_k(model, fed, range(2, 5), index="fuzzy-davies-bouldin")

    there, here = (
        make(make_sites(), aggregation=aggregation)
        for make in (lambda *a, **k: on_cluster(client, *a, **k), Federation.local)
    )
    found, expected = chosen(there), chosen(here)
    assert found.k == expected.k
    assert found.scores == expected.scores
    assert same(found.model, expected.model)


def test_what_left_each_party_is_told_from_the_ledgers_at_the_workers(client):
    fed = Federation.local(make_sites())
    fed.use_engine(ObservedEngine(DaskEngine(client, fed.local_sites, seed=fed.seed), ignore_event))
    FuzzyCMeans(2, max_iter=2).fit(fed)
    assert fed.received_bytes() == {party: own["bytes"] for party, own in fed.traffic().items()}
    assert min(fed.received_bytes().values()) > 0


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_a_run_that_was_broken_off_is_resumed_at_new_seats_to_the_same_bits(client, aggregation, tmp_path):
    def fed(run=None):
        made = Federation.local(make_sites(), aggregation=aggregation, run=run)
        made.use_engine(DaskEngine(client, made.local_sites, seed=made.seed))
        return made

    def model():
        return FuzzyCMeans(3, scale="standardise", max_iter=6, random_state=0)

    def leave(event, **facts):
        if event == "asked" and facts["step"] == 9:
            raise KeyboardInterrupt

    first = fed(tmp_path / "run")
    first.use_engine(ObservedEngine(DaskEngine(client, first.local_sites, seed=first.seed), leave))
    with pytest.raises(KeyboardInterrupt):
        model().fit(first)
    first.close()
    assert same(model().fit(fed(tmp_path / "run")), model().fit(fed()))


@pytest.mark.parametrize("method", [SummaryClustering, lambda: FuzzyCMeans(3, init="box", max_iter=3, random_state=0)])
def test_more_rounds_on_a_cluster_find_the_bits_of_one_process(client, method):
    there, here = method(), method()
    for number in range(3):
        fed = Federation.local(grown(number), columns=["age", "bp"], policy="standard")
        fed.use_engine(DaskEngine(client, fed.local_sites, seed=fed.seed))
        there.partial_fit(fed)
        here.partial_fit(Federation.local(grown(number), columns=["age", "bp"], policy="standard"))
        assert same(there, here)
        assert np.array_equal(there.cluster_sizes_, here.cluster_sizes_)
        assert not any("started from the beginning" in note for note in there.notes_)


def test_a_memory_that_takes_long_to_arrive_is_there_before_the_question(client):
    there, here = SummaryClustering(), SummaryClustering()
    for number in range(2):
        parts = grown(number)
        fed = Federation.local(parts, columns=["age", "bp"], policy="standard")
        engine = DaskEngine(client, fed.local_sites, seed=fed.seed)
        if number:
            for party, memory in there._memories.items():
                engine._site_servers[party].memory[fed.run_id] = {**memory, "ballast": np.ones(30 * 2**20 // 8)}
        fed.use_engine(engine)
        there.partial_fit(fed)
        here.partial_fit(Federation.local(parts, columns=["age", "bp"], policy="standard"))
    assert not any("started from the beginning" in note for note in there.notes_)
    assert np.array_equal(there.cluster_sizes_, here.cluster_sizes_)
    assert same(there, here)


def test_parties_sit_at_different_workers(client):
    fed = on_cluster(client, make_sites())
    workers = {seat._address for seat in fed.engine._worker_sites.values()}
    assert len(workers) == 2


def large_site(client, X, pieces, **options):
    """One site whose rows are in pieces at the workers."""
    parts = [SiteData("large", open_source(rows, site="large")) for rows in np.array_split(X, pieces)]
    whole = SiteData("large", open_source(X, site="large"))
    fed = Federation.local({"large": X}, **options)
    desk = DistributedSiteServer(client, parts, whole, find_policy("none"))
    fed.engine = LocalEngine({"large": desk})
    fed.local_sites = LocalSites({"large": desk})
    fed.use_engine(fed.engine)
    return fed, desk


@pytest.mark.parametrize("method", [KMeans, FuzzyCMeans])
@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_the_rows_of_one_site_in_pieces_give_its_bits(client, method, pieces):
    X = np.concatenate(list(make_sites(rows=400).values()))
    fed, desk = large_site(client, X, pieces)
    alone = Federation.local({"large": X})  # its name is part of its streams
    spread, whole = (method(3, scale="standardise", max_iter=8).fit(data) for data in (fed, alone))
    assert same(spread, whole)
    assert len(desk._parts) == pieces


def test_a_party_whose_worker_is_killed_in_a_step_is_named_and_the_others_answer():
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        fed = on_cluster(client, make_sites(parties=3))
        places = {party: seat._address for party, seat in fed.engine._worker_sites.items()}
        assert len(set(places.values())) == 3
        pids = client.run(os.getpid)

        def kill_at(event, **facts):
            if event == "asked" and facts["step"] == 4:
                os.kill(pids[places["p1"]], signal.SIGKILL)

        fed.use_engine(ObservedEngine(fed.engine, kill_at))
        with pytest.raises(QuorumLost, match=r"2 of 3 parties answered, but 3 are required \(p1: no answer"):
            FuzzyCMeans(2, max_iter=5).fit(fed)
