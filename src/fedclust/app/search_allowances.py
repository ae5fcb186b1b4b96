"""How often a study may ask the questions of a choice of K, which depends on the rows of all sites."""

from __future__ import annotations

from fedclust.app.study.study_parts import KSearch
from fedclust.questions import cluster_indices
from fedclust.questions.choice_of_k import (
    choice_questions,
    component_questions,
    contingency_tables,
    floored_questions,
    whole_table_questions,
)
from fedclust.questions.choice_of_k.choice import max_asks

K_SEARCH_QUESTIONS = (  # of a choice by evidence: on other rows it may ask any of them
    choice_questions.power_sums.name,
    choice_questions.product_sums.name,
    choice_questions.cell_histograms.name,
    choice_questions.cell_moments.name,
    component_questions.component_moments.name,
    component_questions.neighbor_counts.name,
    component_questions.count_shared_rows.name,
    component_questions.line_histograms.name,
    component_questions.shell_histograms.name,
    floored_questions.cell_sums.name,
    floored_questions.component_sums.name,
    whole_table_questions.count_hash_bits.name,
    whole_table_questions.half_products.name,
)
INDEX_QUESTIONS = (  # of a choice by an index
    contingency_tables.count_label_pairs.name,
    cluster_indices.index_sums.name,
    cluster_indices.label_sums.name,
    cluster_indices.label_scatter.name,
)
INDEX_ASKS_PER_K, INDEX_ASKS = 64, 160  # questions for each K up to the largest, and in all; most need far fewer


def search_allowances(choice: KSearch, max_clusters: int) -> dict[str, int]:
    """How often a search for K may ask each of its questions."""
    if choice.is_by_index:
        return dict.fromkeys(INDEX_QUESTIONS, INDEX_ASKS + INDEX_ASKS_PER_K * max_clusters)
    return dict.fromkeys(K_SEARCH_QUESTIONS, max_asks(floor=2))
