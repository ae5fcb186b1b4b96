"""How often a study may ask questions whose number depends on the rows of all sites: for initial centres, and for sums
that are opened above a floor.
"""

from __future__ import annotations

from fedclust.algorithms.cmeans import choice_cells, described_cells, floored_opening
from fedclust.algorithms.shared import cell_sums
from fedclust.algorithms.shared.spread_free_centers import MAX_START_ASKS
from fedclust.app.study.study_parts import Study
from fedclust.models.centers_checks import TREE_INITS
from fedclust.questions.schema import encoded_names

START_QUESTIONS = (
    cell_sums.scatter_sums.name,
    cell_sums.part_counts.name,
    cell_sums.part_moments.name,
    cell_sums.part_sums.name,
    cell_sums.nearest_counts.name,
    cell_sums.nearest_sums.name,
    cell_sums.objectives.name,
)


DESCRIPTION_QUESTIONS = (
    described_cells.cell_spread.name,
    described_cells.cell_distances.name,
)


def opening_allowances(study: Study, max_rounds: int, max_fits: int) -> dict[str, int]:
    """Return the largest number of answers to questions for sums above a floor; empty if the study opens all sums."""
    if study.cluster.options.get("opening") != "floored":
        return {}
    described = dict.fromkeys(DESCRIPTION_QUESTIONS, 1)
    if study.aggregation.mode == "plain":
        described[described_cells.cell_counts.name] = 1
    known = {} if study.cluster.choice is None else {choice_cells.leaf_sums.name: max_fits}
    return {floored_opening.open_moments.name: (max_rounds + 1) * max_fits, **known, **described}


def start_allowances(study: Study) -> dict[str, int]:
    """Return the largest number of answers to each question of the start; empty if the study has another start."""
    init = study.make_estimator(encoded_names(study.schema) or None).get_params().get("init")
    if study.split != "rows" or not isinstance(init, str) or init not in TREE_INITS:
        return {}
    choice = study.cluster.choice
    fits = 1 if choice is None else max(1, study.cluster.max_clusters * choice.fits_per_k)
    return dict.fromkeys(START_QUESTIONS, fits * MAX_START_ASKS)
