"""Not a bit of any method, mode, split, backend or handler changes without a line in CHANGES.md."""

import fnmatch
import json
import re
from pathlib import Path

import pytest

from golden import cases, record

HERE = Path(__file__).parent
VALUES = json.loads((HERE / "values.json").read_text())
RECORDED = json.loads((HERE / "recorded.json").read_text())
LINE = re.compile(r"- `?(?P<case>[^:`]+?)`?(?: -> `?(?P<new>[^:`]+?)`?)?(?P<removed> removed)?: (?P<why>.+)")
HANDLER_CASES = sorted(name for name in VALUES["values"] if name.startswith("handler/"))

pytestmark = pytest.mark.filterwarnings("ignore")  # a warning is no bit of a result


def listed():
    text = (HERE / "CHANGES.md").read_text().partition("## List")[2]
    return [found for line in text.splitlines() if (found := LINE.fullmatch(line.strip()))]


def compared(name, value):
    """Hold a value against the recorded one, where it may be compared."""
    recorded = VALUES["values"][name]
    if isinstance(recorded, dict):
        if record.fingerprint() != VALUES["processor"]:
            pytest.skip("recorded on another processor, or with other versions of numpy, scipy or torch")
        recorded = recorded["value"]
    assert value == recorded, f"see what differs: python -m tests.golden.record --show {name}"


@pytest.mark.parametrize("name", cases.CASES)
def test_a_case_has_the_bits_that_were_recorded(name):
    case = cases.CASES[name]
    if case.missing:
        pytest.skip(case.missing)
    compared(name, case.value())


@pytest.fixture(scope="module")
def handlers():
    if lacking := {case.missing for case in cases.CASES.values()} - {None}:
        pytest.skip("; ".join(sorted(lacking)))
    return {name: own["value"] for name, own in cases.handler_values().items()}


@pytest.mark.parametrize("name", HANDLER_CASES)
def test_a_handler_answers_as_it_did(name, handlers):
    compared(name, handlers[name])


def test_every_handler_is_recorded_or_random_by_nature(handlers):
    for name in cases.handler_names():
        for part in ("question", "answer"):
            named = part in cases.RANDOM.get(name, {})
            assert named != (f"handler/{name}/{part}" in handlers), f"{part} of {name}"
    assert set(cases.RANDOM) <= set(cases.handler_names())


def test_every_value_belongs_to_a_case_and_every_case_has_a_value(handlers):
    assert {*cases.CASES, *handlers} == set(VALUES["values"])
    for name, case in cases.CASES.items():
        assert isinstance(VALUES["values"][name], dict) == case.processor


def test_both_backends_give_the_same_bits():
    for name, value in VALUES["values"].items():
        if name.endswith("/numpy"):
            assert value == VALUES["values"][f"{name.removesuffix('/numpy')}/c"], name


def test_only_combinations_of_blind_runs_are_refused():
    refused = [name for name, value in VALUES["values"].items() if "refused" in (value, *dict_values(value))]
    assert refused
    assert all("blind" in name.split("/") for name in refused), refused


def dict_values(value):
    return value.values() if isinstance(value, dict) else ()


def test_what_changed_since_the_first_recording_is_listed():
    lines = listed()
    renamed = {found["case"]: found["new"] for found in lines if found["new"]}
    removed = [found["case"] for found in lines if found["removed"]]
    changed = [found["case"] for found in lines if not found["new"] and not found["removed"]]
    for old, recorded in RECORDED["values"].items():
        name = renamed.get(old, old)
        if name not in VALUES["values"]:
            assert any(fnmatch.fnmatchcase(old, one) for one in removed), f"{old} is gone: list it in CHANGES.md"
        elif VALUES["values"][name] != recorded:
            assert any(fnmatch.fnmatchcase(name, one) for one in changed), f"{name} changed: list it in CHANGES.md"
