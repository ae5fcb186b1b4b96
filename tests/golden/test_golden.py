"""Not a bit of any method, mode, split, backend or handler changes without a line in CHANGES.md."""

import json
from pathlib import Path

import pytest

from golden import cases, changes, record

HERE = Path(__file__).parent
VALUES = json.loads((HERE / "values.json").read_text())
RECORDED = changes.read_values("recorded.json")
HANDLER_CASES = sorted(name for name in VALUES["values"] if name.startswith("handler/"))

pytestmark = pytest.mark.filterwarnings("ignore")  # a warning is no bit of a result


def compared(name, value):
    """Hold a value against the recorded one, where it may be compared."""
    recorded = VALUES["values"][name]
    if isinstance(recorded, dict):
        if record.fingerprint() != VALUES["processor"]:
            pytest.skip("recorded on another processor, or with other versions of numpy, scipy or torch")
        recorded = recorded["value"]
    assert value == recorded, f"see what differs: python -m tests.golden.record --show {name}"


@pytest.fixture(scope="module")
def handlers():
    """The values of handlers, whose scenarios run first: many are cases, too, which then need no run of their own."""
    if lacking := {case.missing for case in cases.CASES.values()} - {None}:
        pytest.skip("; ".join(sorted(lacking)))
    return {name: own["value"] for name, own in cases.handler_values().items()}


@pytest.mark.parametrize("name", HANDLER_CASES)
def test_a_handler_answers_as_it_did(name, handlers):
    compared(name, handlers[name])


@pytest.mark.parametrize("name", cases.CASES)
def test_a_case_has_the_bits_that_were_recorded(name):
    case = cases.CASES[name]
    if case.missing:
        pytest.skip(case.missing)
    compared(name, case.value())


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


def test_the_list_of_changes_names_exactly_what_changed_since_the_first_recording():
    listed = changes.read_list((HERE / "CHANGES.md").read_text())
    assert changes.find_faults(listed, changes.find_changes(RECORDED, VALUES["values"], listed.renamed)) == []


@pytest.mark.parametrize("name", ["handler/bounds.rows/answer", "statistics", "quorum/k-fed/plain"])
def test_a_change_of_a_case_that_is_not_listed_is_a_fault(name):
    listed = changes.read_list((HERE / "CHANGES.md").read_text())
    values = VALUES["values"] | {name: "another value"}
    found = changes.find_changes(RECORDED, values, listed.renamed)
    assert changes.find_faults(listed, found) == [f"{name} changed: list it"]


def test_a_line_that_allows_more_than_what_changed_is_a_fault():
    listed = changes.read_list("## List\n- a/*: a reason\n- c: a reason\n- d removed: a reason\n")
    found = changes.find_changes({"a/1": 1, "a/2": 1, "c": 1, "d": 1}, {"a/1": 2, "a/2": 1, "c": 1, "d": 1}, {})
    assert (found.unchanged, found.changed) == (["a/2", "c", "d"], ["a/1"])
    assert changes.find_faults(listed, found) == [
        "a/*: a/2 did not change",
        "c: c did not change",
        "c: no case changed",
        "d: d is still there",
        "d: no case is gone",
    ]
