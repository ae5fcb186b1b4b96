"""Every registered algorithm on every engine: one fixture, one battery."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedclust import Federation
from fedclust.estimators import METHODS
from fedclust.testing import CHECKS

ENGINES = {
    "local": {},
    "local-wire": {"wire": True},
    "secure": {"aggregation": "secure"},
    "blind": {"aggregation": "blind", "early_stopping": True},
}
SETTINGS = {
    "c-means": [{}, {"start": "box"}, {"scale": "standardise"}, {"missing": "drop"}],
    "fuzzy-c-means": [{}, {"start": "party"}, {"m": 1.7, "scale": "standardise"}, {"missing": "partial"}],
    "averaged-fuzzy-c-means": [{}, {"average": "index", "scale": "standardise"}],
    "gradient-fuzzy-c-means": [{"max_rounds": 6}, {"max_rounds": 6, "start": "box", "scale": "standardise"}],
    "gaussian-mixture": [{}, {"family": "EEE", "scale": "standardise"}, {"family": "EII", "start": "box"}],
    "k-fed": [{}, {"scale": "standardise", "min_rows": 4}],
    "fcac": [{}, {"setting": "published"}, {"missing": "drop", "scale": "none"}],
    "mufc": [{}, {"bounds": (-20, 40), "scale": "minmax", "local_clusters": 5}],
}


@dataclass
class OnEngine:
    method: str
    options: dict[str, Any]
    engine: dict[str, Any]
    folder: Path

    def estimator(self, seed=0):
        kind = METHODS[self.method]
        clusters = () if "setting" in kind().get_params() else (3,)  # a method that has settings finds their number
        return kind(*clusters, random_state=seed, **self.options)

    def federation(self, sites, **options):
        return Federation.local(sites, **self.engine, **options)


def test_every_method_has_settings():
    assert set(SETTINGS) == set(METHODS)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("engine", "method", "number"),
    [
        (engine, method, number)
        for engine, how in ENGINES.items()
        for method, settings in SETTINGS.items()
        for number in range(1 if "aggregation" in how else len(settings))
    ],
)
def test_conforms(method, number, check, engine, tmp_path):
    CHECKS[check](OnEngine(method, SETTINGS[method][number], ENGINES[engine], tmp_path / "run"))
