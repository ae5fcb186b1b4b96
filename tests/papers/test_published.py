"""The printed numbers: they parse, each has its place, and each experiment knows its own."""

import json
from pathlib import Path

import pytest

from papers.reproduction import catalogue
from papers.reproduction.assembling import UNEXPLAINED
from papers.reproduction.published import papers
from papers.reproduction.store import present

SHOWN = Path(__file__).parents[2] / "docs" / "reproduction" / "results.json"
shown = pytest.mark.skipif(not SHOWN.exists(), reason="no page of results is part of the documentation yet")
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


@shown
def test_the_page_that_is_shown_has_a_reason_for_every_disagreement():
    whole = json.loads(SHOWN.read_text("utf-8"))
    assert {own["name"] for own in whole["experiments"]} <= set(TABLES)
    cells = [cell for own in whole["experiments"] for cell in own["cells"] if cell["held"]]
    assert cells
    assert [cell["at"] for cell in cells if cell.get("why") == UNEXPLAINED] == []
    claims = [claim for own in whole["experiments"] for claim in own["claims"]]
    assert [claim["text"] for claim in claims if claim.get("why") == UNEXPLAINED] == []


@shown
def test_the_page_that_is_shown_quotes_the_papers_as_they_are_printed():
    whole = json.loads(SHOWN.read_text("utf-8"))
    for own in whole["experiments"]:
        printed = {at: cell.text for at, cell in TABLES[own["name"]].cells.items()}
        assert {cell["at"]: cell["printed"] for cell in own["cells"]} == printed


@shown
@pytest.mark.slow
def test_the_page_shows_what_the_present_code_computes():
    times = json.loads(SHOWN.with_name("times.json").read_text("utf-8"))
    assert "failed" not in times
    old = {
        experiment
        for experiment, time in times.items()
        for name, digest in time["rests on"].items()
        if ":" in name and present(name) != digest
    }
    assert not old, "code has changed since; compute these again with fedclust reproduce, and --renew the page"
