"""Which studies sites verify, what a study may say about it, and what an approval of one binds."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedclust.app.study import parse_study
from fedclust.core import greeting, script_version
from fedclust.core.errors import StudyError
from fedclust.core.greeting import Greeting, Welcome, versions_differ
from fedclust.models.methods import Method, study_methods
from verified.served_sites import NAMES, study_text

GOLDEN = Path(__file__).parents[1] / "golden" / "values.json"


def parsed(cluster='method = "k-means"\nk = 3', **parts):
    return parse_study(study_text(cluster, **parts), folder=Path(), served=True)


@pytest.mark.parametrize(
    "cluster",
    [
        'method = "k-means"\nk = 3',
        'method = "k-means"\nk = "auto"',
        'method = "fuzzy-c-means"\nk = 3',
        'method = "gaussian-mixture"\nk = "2..4"',
    ],
)
def test_a_secure_study_of_three_sites_is_verified_by_default(cluster):
    assert parsed(cluster).is_verified
    assert not parsed(cluster, privacy="verified = false").is_verified


@pytest.mark.parametrize(
    ("cluster", "names", "why"),
    [
        ('method = "k-means"\nk = 3\ninit = "party"', NAMES, "points of single sites"),
        ('method = "k-means"\nk = 3\ninit = "careful"', NAMES, "points of single sites"),
        ('method = "k-means"\nk = 3\nquorum = 2', NAMES, "with a quorum"),
        ('method = "k-fed"\nk = 3', NAMES, "answers of single sites"),
        ('method = "fcac"', NAMES, "answers of single sites"),
    ],
)
def test_a_study_that_sites_cannot_verify_says_why(cluster, names, why):
    assert not parsed(cluster, names=names).is_verified
    with pytest.raises(StudyError, match=why):
        parsed(cluster, names=names, privacy="verified = true")


def test_other_aggregation_is_not_verified():
    text = study_text('method = "k-means"\nk = 3', privacy="verified = true")
    for mode in ("plain", "blind"):
        with pytest.raises(StudyError, match=f"aggregation is '{mode}'"):
            parse_study(text.replace('"secure"', f'"{mode}"'), folder=Path(), served=True)


def test_a_method_of_another_package_is_not_verified_unless_it_says_so():
    known = study_methods()["k-means"]
    assert known.verifiable
    assert not Method("other", known.estimator, "other", "Another one.").verifiable


def test_the_script_version_belongs_to_the_golden_questions():
    """If this fails, a script asks other questions: raise SCRIPT_VERSION, and then write the new digest next to it."""
    values = json.loads(GOLDEN.read_text())["values"]
    questions = {
        name: value["value"] if isinstance(value, dict) else value
        for name, value in values.items()
        if name.startswith("handler/") and name.endswith("/question")
    }
    digest = hashlib.sha256(json.dumps(questions, sort_keys=True).encode()).hexdigest()
    assert digest == script_version.GOLDEN_QUESTIONS_DIGEST


def test_another_script_version_is_another_version():
    greeted = Greeting.for_party("north", run="r", study="s")
    assert greeted.script == greeting.SCRIPT_VERSION
    welcome = Welcome.reply_to(greeted, "north")
    assert not versions_differ(greeted, welcome)
    assert versions_differ(replace(greeted, script=greeted.script + 1), welcome)
