"""Every way to compile the kernels gives the twin's bits: several instruction sets, and no vectors at all."""

import numpy as np
import pytest
from kernels_building import built, chosen

from fedclust import kernels
from fedclust.kernels import Sums, _backend, distances, elementary, exact_sums, fuzzy_sweep, hard_sweep


def answers():
    found = []
    rng = np.random.default_rng(0)
    for n, F, C, m in [
        (1, 1, 1, 2.0),
        (70, 3, 2, 1.7),
        (300, 16, 10, 2.0),
        (301, 17, 13, 1.3),
        (90, 130, 7, 3.0),
        (200, 9, 40, 2.5),
        (150, 200, 12, 1.5),
    ]:
        block, centers = rng.normal(size=(F, n)) * 10.0 ** rng.integers(-4, 4, (F, 1)), rng.normal(size=(C, F))
        centers[0] = block[:, 0]
        for x in (block, block.astype(np.float32)):
            d2 = distances.squared_distances(x, centers)
            found += [
                d2,
                fuzzy_sweep.memberships(x, centers, m),
                fuzzy_sweep.weights_from_distances(d2, m),
                *distances.nearest_centers(x, centers),
            ]
            found += [distances.exact_distances(x, centers, -60), exact_sums.exact_totals(x, -30)]
            for unit in (np.full((C, F), -30), np.arange(C)[:, None] % 2 - np.full((C, F), 30)):
                hard, fuzzy = (Sums.zeros(np.full(C, -51), unit, -20) for _ in range(2))
                hard_sweep.accumulate(hard, x, centers)
                fuzzy_sweep.accumulate(fuzzy, x, centers, m)
                found += [hard.mass, hard.pull, hard.objective, fuzzy.mass, fuzzy.pull, fuzzy.objective]
    x = 10.0 ** rng.uniform(-320, 300, 999)
    found += [elementary.power(x, p) for p in (0.3, 10.0, -1.7)]
    found += [elementary.log(x), elementary.log2(x), elementary.exp(np.log(x)), elementary.exp2(np.log2(x))]
    return [a.tobytes() for a in found]


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"FEDCLUST_PORTABLE": "1"}, {"CFLAGS": "-DLANES=1"}, {"CFLAGS": "-DLANES=2"}])
def test_every_build_gives_the_same_bits(tmp_path, monkeypatch, environment):
    module = built("_sweeps", tmp_path, **environment)
    monkeypatch.setitem(_backend.available, "c", module)
    with kernels.use_backend("numpy"):
        expected = answers()
    for name in chosen(module):
        with kernels.use_backend("c"):
            assert answers() == expected, name
