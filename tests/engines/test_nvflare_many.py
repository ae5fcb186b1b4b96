"""Twenty sites over NVIDIA FLARE on one machine, a hundred rounds: the coordinator's memory stays what it was."""

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

import psutil

from fault_rig.loops import carry_by_engine
from fedclust import Federation, FuzzyCMeans

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

SITES, ROUNDS = 20, 100
SETTLED = 20  # rounds: all has been used a few times, and what FLARE keeps for seven seconds is there
MODEL = {"tol": None, "max_iter": ROUNDS, "init": "box", "bounds": (-20, 20)}


def coordinators():
    """This process, FLARE's server below it, and the server's half of the job."""
    found = {"this process": psutil.Process()}
    for below in psutil.Process().children(recursive=True):
        words = " ".join(below.cmdline())
        if "runner_process" in words:
            found["job"] = below
        elif "nvflare_process server" in words:
            found["server"] = below
    assert len(found) == 3
    return found


def test_a_hundred_rounds_of_twenty_sites_leave_the_coordinators_memory_flat(tmp_path, record_property):
    rng = np.random.default_rng(0)
    parts = {f"site-{i}": rng.normal(size=(50, 4)) + rng.choice([0, 8], (50, 1)) for i in range(SITES)}
    fed = carry_by_engine("nvflare", Federation.local(parts), tmp_path)
    sizes = []

    def watch(_):
        sizes.append({name: one.memory_info().rss / 2**20 for name, one in coordinators().items()})

    fed.watch = watch
    model = FuzzyCMeans(3, **MODEL).fit(fed)
    assert model.n_iter_ == ROUNDS
    told = [{name: round(size, 1) for name, size in one.items()} for one in sizes[::10]]
    record_property("megabytes", told)
    total = [sum(one.values()) for one in sizes]
    assert max(total[SETTLED:]) <= 1.1 * total[SETTLED], told
    alone = FuzzyCMeans(3, **MODEL).fit(Federation.local(parts))
    assert np.array_equal(model.cluster_centers_, alone.cluster_centers_)
