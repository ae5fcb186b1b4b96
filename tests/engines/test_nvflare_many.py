"""Twenty sites over NVIDIA FLARE on one machine, three hundred rounds: the coordinator's memory stays what it was."""

import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

import psutil

from fault_rig.loops import carry_by_engine
from fedclust import Federation, FuzzyCMeans
from fedclust.engines.nvflare import child_processes

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

SITES, ROUNDS = 20, 300
ROUND_SECONDS = 0.1  # a pause in each round: how much FLARE keeps depends on the rounds per second
SETTLED = 100  # rounds, so ten seconds or more: FLARE keeps a thread for each answer for about seven
MODEL = {"tol": None, "max_iter": ROUNDS, "init": "box", "bounds": (-20, 20)}


def find_servers():
    """FLARE's servers below this process."""
    below = psutil.Process().children(recursive=True)
    return {one for one in below if f"{child_processes.__name__} server" in " ".join(one.cmdline())}


def find_coordinators(earlier):
    """This process, FLARE's server that is not one of the earlier ones, and the server's half of the job."""
    (server,) = find_servers() - earlier
    (job,) = [one for one in server.children(recursive=True) if "runner_process" in " ".join(one.cmdline())]
    return {"this process": psutil.Process(), "server": server, "job": job}


def test_three_hundred_rounds_of_twenty_sites_leave_the_coordinators_memory_flat(tmp_path, record_property):
    rng = np.random.default_rng(0)
    parts = {f"one-of-many-{i}": rng.normal(size=(50, 4)) + rng.choice([0, 8], (50, 1)) for i in range(SITES)}
    earlier = find_servers()  # other tests of this process keep theirs
    fed = carry_by_engine("nvflare", Federation.local(parts), tmp_path)
    sizes = []

    def watch(_):
        time.sleep(ROUND_SECONDS)
        sizes.append({name: one.memory_info().rss / 2**20 for name, one in find_coordinators(earlier).items()})

    fed.watch = watch
    model = FuzzyCMeans(3, **MODEL).fit(fed)
    assert model.n_iter_ == ROUNDS
    told = [{name: round(size, 1) for name, size in one.items()} for one in sizes[::20]]
    record_property("megabytes", told)
    total = [sum(one.values()) for one in sizes]
    assert max(total[SETTLED:]) <= 1.1 * total[SETTLED], told
    alone = FuzzyCMeans(3, **MODEL).fit(Federation.local(parts))
    assert np.array_equal(model.cluster_centers_, alone.cluster_centers_)
