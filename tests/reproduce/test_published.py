"""The printed numbers: they parse, each has its place, and each experiment knows its own."""

import pytest

from fedclust.reproduce import catalogue
from fedclust.reproduce.published import papers

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
    assert (doubtful.text, doubtful.held, doubtful.mark) == ("0.48", False, "other data")
