"""The checks of the battery that make sense over columns, for the methods that cluster them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedclust import Federation
from fedclust.models.methods import study_methods
from fedclust.testing import CHECKS

ENGINES = {"local": {}, "local-wire": {"wire": True}}
SETTINGS = [
    ("k-means", {}),
    ("k-means", {"init": "box"}),
    ("fuzzy-c-means", {"scale": "standardise", "m": 1.7}),
    ("k-means", {"init": "box", "opens": "labels", "max_iter": 4}),
]
APPLY = [
    "check_same_seed_same_bits",
    "check_bytes_carried_are_bytes_in_the_ledger",
    "check_drop_outs_end_in_a_result_or_a_clear_refusal",
    "check_late_and_foreign_answers_are_not_used",
    "check_a_recorded_run_replays_without_its_sites",
    "check_answers_are_pure",
    "check_every_question_declares_what_it_discloses",
]


@dataclass
class OverColumns:
    method: str
    options: dict[str, Any]
    engine: dict[str, Any]
    folder: Path

    def estimator(self, seed=0):
        return study_methods()[self.method].estimator(3, random_state=seed, **self.options)

    def federation(self, sites, **options):
        X = np.concatenate(list(sites.values()))
        X = np.column_stack([X, X.sum(axis=1)])
        return Federation.local({f"p{i}": X[:, [i]] for i in range(4)}, split="columns", **self.engine, **options)


@pytest.mark.parametrize("check", APPLY)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_conforms_over_columns(number, engine, check, tmp_path):
    method, options = SETTINGS[number]
    if "opens" in options and check == "check_answers_are_pure":
        pytest.skip("letters are sealed, and shares masked, by keys that are fresh each time")
    CHECKS[check](OverColumns(method, options, ENGINES[engine], tmp_path / "run"))
