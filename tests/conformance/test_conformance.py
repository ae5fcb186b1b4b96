"""Every registered algorithm on every engine: one fixture, one battery."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedclust import Federation
from fedclust.estimators import METHODS
from fedclust.testing import CHECKS

ENGINES = {"local": {}, "local-wire": {"wire": True}}
SETTINGS = {
    "c-means": [{}, {"start": "box"}, {"scale": "standardise"}, {"missing": "drop"}],
    "fuzzy-c-means": [{}, {"start": "party"}, {"m": 1.7, "scale": "standardise"}, {"missing": "partial"}],
    "averaged-fuzzy-c-means": [{}, {"average": "index", "scale": "standardise"}],
    "gradient-fuzzy-c-means": [{"max_rounds": 6}, {"max_rounds": 6, "start": "box", "scale": "standardise"}],
    "gaussian-mixture": [{}, {"family": "EEE", "scale": "standardise"}, {"family": "EII", "start": "box"}],
}


@dataclass
class OnEngine:
    method: str
    options: dict[str, Any]
    engine: dict[str, Any]
    folder: Path

    def estimator(self, seed=0):
        return METHODS[self.method](3, random_state=seed, **self.options)

    def federation(self, sites, **options):
        return Federation.local(sites, **self.engine, **options)


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


def test_every_method_has_settings():
    assert set(SETTINGS) == set(METHODS)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("method", "number"), [(m, n) for m, s in SETTINGS.items() for n in range(len(s))])
def test_conforms(method, number, check, engine, tmp_path):
    CHECKS[check](OnEngine(method, SETTINGS[method][number], engine, tmp_path / "run"))
