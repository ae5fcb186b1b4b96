"""The printed numbers: they parse, each has its place, and each experiment knows its own."""

import io
import json
from pathlib import Path

import pytest

from papers.reproduction import catalogue, running
from papers.reproduction.assembling import UNEXPLAINED
from papers.reproduction.published import papers
from papers.reproduction.store import Store, current

SHOWN = Path(__file__).parents[2] / "papers" / "results" / "results.json"
PAPERS = papers()
TABLES = {name: table for paper in PAPERS.values() for name, table in paper.tables.items()}


def test_every_table_has_its_function_and_every_function_its_table():
    assert set(catalogue.everything()) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_number_parses_or_is_marked_as_lost(name):
    table = TABLES[name]
    assert table.cells or table.claims
    for cell in table.cells.values():
        if cell.text is None:
            assert cell.mark == "lost", cell.place
        else:
            assert cell.value == cell.value, cell.place  # no NaN
        assert bool(cell.mark) == bool(cell.reason), cell.place
        assert cell.better in {"high", "low", ""}


def test_a_dozen_cells_of_table_3_are_lost_and_all_but_two_columns_of_table_4():
    lost = {name: sum(cell.mark == "lost" for cell in TABLES[name].cells.values()) for name in TABLES}
    assert (lost["paper0-table3"], lost["paper0-table4"], lost["paper0-table5"]) == (12, 12, 15)


def test_numbers_keep_their_digits():
    cells = TABLES["paper1-table1"].cells
    cell = cells["displacement | xclara | 0.75"]
    assert (cell.text, cell.value, cell.unit, cell.digits) == ("0.00250", 0.0025, 1e-5, 5)
    assert cell.held
    doubtful = TABLES["paper0-table3"].cells["LLF-FCM, ARI with the classes | PE | 1.00"]
    assert (doubtful.text, doubtful.held, doubtful.mark) == ("0.48", False, "contradicted")


def test_the_page_that_is_shown_has_a_reason_for_every_disagreement():
    whole = json.loads(SHOWN.read_text("utf-8"))
    assert {own["name"] for own in whole["experiments"]} <= set(TABLES)
    cells = [cell for own in whole["experiments"] for cell in own["cells"] if cell["held"]]
    assert cells
    assert [cell["at"] for cell in cells if cell.get("why") == UNEXPLAINED] == []
    claims = [claim for own in whole["experiments"] for claim in own["claims"]]
    assert [claim["text"] for claim in claims if claim.get("why") == UNEXPLAINED] == []


def test_the_page_that_is_shown_quotes_the_papers_as_they_are_printed():
    whole = json.loads(SHOWN.read_text("utf-8"))
    for own in whole["experiments"]:
        printed = {at: cell.text for at, cell in TABLES[own["name"]].cells.items()}
        assert {cell["at"]: cell["printed"] for cell in own["cells"]} == printed


def versions_and_rows(kinds):
    """What the figures of the page depend on that is not what it was, with the experiments that depend on it."""
    times = json.loads(SHOWN.with_name("times.json").read_text("utf-8"))
    assert "failed" not in times
    return {
        name: experiment
        for experiment, time in times.items()
        for name, recorded in time["depends on"].items()
        if name.startswith(kinds) and current(name) != recorded
    }


def test_the_page_shows_figures_of_the_present_versions():
    old = versions_and_rows(("method/", "paper/"))
    assert not old, "versions were raised: compute these again with python -m papers.reproduction, and --renew the page"


@pytest.mark.slow
def test_the_page_shows_figures_of_the_rows_at_hand():
    assert not versions_and_rows(("data/",))


@pytest.mark.parametrize("name", ["paper3-fig1", "paper3-fig4"])
def test_a_quick_experiment_gives_the_figures_that_the_page_shows(name, tmp_path):
    same_as_shown(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper1-table1", "paper1-fig1", "paper2-fig6", "paper2-noniid", "paper0-text"])
def test_an_experiment_on_benchmark_data_gives_the_figures_that_the_page_shows(name, tmp_path):
    same_as_shown(name, tmp_path)


def same_as_shown(name, folder):
    """Compute an experiment in full and compare it with the page, number by number."""
    shown = next(own for own in json.loads(SHOWN.read_text("utf-8"))["experiments"] if own["name"] == name)
    whole, times = running.carried_out(catalogue.named(name), Store(folder), quick=False, told=io.StringIO())
    assert "failed" not in times
    (found,) = whole["experiments"]
    if absent := set(found["absent"]) - set(shown["absent"]):
        pytest.skip(f"data sets that are not at hand: {', '.join(sorted(absent))}")
    assert [own["at"] for own in found["cells"]] == [own["at"] for own in shown["cells"]]
    for key in ("cells", "claims", "ours", "figures", "more"):
        assert_same_numbers(found[key], shown[key])


def assert_same_numbers(found, shown):
    """The same, but for what another processor may round differently in the last of twelve digits."""
    if isinstance(shown, dict):
        assert found.keys() == shown.keys()
        for key in shown:
            assert_same_numbers(found[key], shown[key])
    elif isinstance(shown, list):
        assert len(found) == len(shown)
        for one, other in zip(found, shown, strict=True):
            assert_same_numbers(one, other)
    elif isinstance(shown, float):
        assert found == pytest.approx(shown, rel=1e-9, abs=1e-12)
    else:
        assert found == shown
