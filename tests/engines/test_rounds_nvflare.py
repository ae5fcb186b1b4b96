"""Rounds over NVIDIA FLARE: sites serve on, their tables grow, and each round finds what one process would."""

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import NAMES, Federation3
from test_rounds import alike, expected, grown

import fedclust as fc

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

COLUMNS = 'name = "three"\ncolumns = ["age", "bp"]\n'
SUMMARIES = COLUMNS + '[cluster]\nmethod = "summary-clustering"\n'
LOSSLESS = (
    COLUMNS
    + '[cluster]\nmethod = "fuzzy-c-means"\nk = 3\ninit = "box"\nmax_iter = 2\n[privacy]\naggregation = "secure"\n'
)


def put(own, tables):
    for name, X in tables.items():
        np.savetxt(own.folder / f"{name}.csv", X, delimiter=",", header="age,bp", comments="", fmt="%.17g")


def served(folder, study, policy):
    own = Federation3.made(folder, study=study, policy=policy)
    put(own, grown(0))
    own.serve()
    return own


def done(own, run, process):
    assert process.wait(400) == 0, own.said(run)
    return fc.load(own.folder / run / "model.json")


def test_sites_that_serve_on_tell_each_row_once_over_flare(tmp_path):
    own = served(tmp_path, SUMMARIES, "standard")
    try:
        done(own, "r", own.coordinate("r"))
        put(own, grown(1))
        again = done(own, "r-2", own.update("r", "r-2"))
        assert alike(again, expected(2))
        own.sites["south"].terminate()
        own.sites["south"].wait(120)
        own.serve("south")  # what it remembers is on its disk
        put(own, grown(2))
        last = done(own, "r-3", own.update("r-2", "r-3"))
        assert alike(last, expected(3))
        assert not any("started from the beginning" in note for note in last.notes_)
    finally:
        own.stop()


def test_lossless_models_take_batches_over_flare(tmp_path):
    own = served(tmp_path, LOSSLESS, "none")
    try:
        here = done(own, "r", own.coordinate("r"))
        batch = {name: X[:60] for name, X in grown(0).items()}
        put(own, batch)
        model = done(own, "r-2", own.update("r", "r-2"))
        assert all(own.model_at(name, "r-2") == own.model("r-2") for name in NAMES)
    finally:
        own.stop()
    here.partial_fit(fc.Federation.local(batch, columns=["age", "bp"]))
    assert set(batch) == set(NAMES)
    assert np.array_equal(model.cluster_centers_, here.cluster_centers_)
    assert np.array_equal(model.cluster_sizes_, here.cluster_sizes_)
