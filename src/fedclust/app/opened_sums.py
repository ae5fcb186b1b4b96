"""How many sums of groups of rows a study opens at most.

Each row that follows from sums by adding and subtracting takes up one of them, so no more rows than sums follow. This
holds for any number of rows and sites, unlike a measurement on the rows of one site.
"""

from __future__ import annotations

from fedclust.algorithms.shared.cell_tree import max_cells
from fedclust.app.study.study_parts import Study
from fedclust.models.centers_checks import TREE_INITS
from fedclust.questions.choice_of_k.cell_growth import MAX_CELLS, MAX_PIECES
from fedclust.questions.choice_of_k.components import CHAINS, ROUNDS, TRIES
from fedclust.questions.schema import encoded_names


def max_opened_sums(study: Study, max_rounds: int, max_fits: int) -> int:
    """Return the largest number of sums over a row split that a run opens; 0 if there are only sums of all rows.

    `max_rounds` and `max_fits` are the most iterations of a fit and the most fits of a run.
    """
    choice = study.cluster.choice
    k = MAX_PIECES if choice is not None and not choice.ks else study.cluster.max_clusters
    init = study.make_estimator(encoded_names(study.schema) or None).get_params().get("init")
    by_evidence = choice is not None and not choice.is_by_index
    fits = 1 if by_evidence else max_fits
    cells = max_cells(k) if isinstance(init, str) and init in TREE_INITS else 0
    start = 3 * cells  # the tree has twice as many cells as leaves, which are refined once
    described = 2 * k  # by the description, and by an index
    chosen = 2 * MAX_CELLS + (ROUNDS * CHAINS + TRIES) * MAX_PIECES if by_evidence else 0
    return fits * (start + k * (max_rounds + 1) + described) + chosen + 1  # and that of all rows
