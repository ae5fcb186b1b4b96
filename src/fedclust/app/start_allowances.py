"""How often a study may ask the questions for initial centres from sums, which depends on the rows of all sites."""

from __future__ import annotations

from fedclust.algorithms.shared import cell_sums
from fedclust.algorithms.shared.spread_free_centers import MAX_START_ASKS
from fedclust.app.study.study_parts import Study
from fedclust.models.centers_estimator import TREE_INITS

START_QUESTIONS = (
    cell_sums.scatter_sums.name,
    cell_sums.part_counts.name,
    cell_sums.part_moments.name,
    cell_sums.part_sums.name,
    cell_sums.nearest_counts.name,
    cell_sums.nearest_sums.name,
    cell_sums.objectives.name,
)


def start_allowances(study: Study) -> dict[str, int]:
    """Return the largest number of answers to each question of the start; empty if the study has another start."""
    init = study.make_estimator(tuple(study.schema) or None).get_params().get("init")
    if study.split != "rows" or not isinstance(init, str) or init not in TREE_INITS:
        return {}
    choice = study.cluster.choice
    fits = 1 if choice is None else max(1, study.cluster.max_clusters * choice.fits_per_k)
    return dict.fromkeys(START_QUESTIONS, fits * MAX_START_ASKS)
