"""Paper 3's continual run in the layout of the reproduction: classes come, do not come back, and are not forgotten."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import fedclust as fc
from papers.reproduction.runs_art import GROUPS, ROUNDS, SUBSETS

SPREAD = (
    0.045  # of every group, and how near a node must be to a row that counts as known: fixed before any row is drawn
)


@pytest.mark.parametrize("seed", [0, 7])
def test_what_round_one_showed_is_known_after_round_three(seed):
    rng, names = np.random.default_rng(seed), list(GROUPS)
    drawn = {s: rng.normal(GROUPS[g], SPREAD, (count, 2)).clip(0, 1) for s, (g, count) in SUBSETS.items()}
    first = np.concatenate([drawn[s] for own in ROUNDS[0].values() for s in own])
    model, seen, truth, before = fc.SummaryClustering(), [], [], set()
    for shares in ROUNDS:
        parts = {site: np.concatenate([drawn[s] for s in own]) for site, own in shares.items()}
        model.partial_fit(fc.Federation.local(parts))
        seen += parts.values()
        truth += [np.full(len(drawn[s]), names.index(SUBSETS[s][0])) for own in shares.values() for s in own]
        nodes = {node.tobytes() for node in model.nodes_}
        assert before <= nodes  # none is moved, none is forgotten
        before = nodes
        assert (cKDTree(model.nodes_).query(first)[0] <= SPREAD).mean() >= 0.99
        assert fc.agreement.ari(model.predict(np.concatenate(seen)), np.concatenate(truth)) > 0.99
    assert model.n_clusters_ == 6
    assert model.node_rows_.sum() == 45_000
