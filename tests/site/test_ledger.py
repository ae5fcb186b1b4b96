"""The ledger: chained, surviving, and honest about being altered."""

import pytest

from fedclust.core.errors import DataError
from fedclust.site.ledger import Ledger, LedgerEntry


def entry(step):
    return LedgerEntry("run", step, "row_split.moments", "total", 3, "ab" * 32, 100 + step)


def test_entries_survive_and_go_on(tmp_path):
    for step in (1, 2, 3):
        ledger = Ledger(tmp_path)
        assert [e.step for e in ledger.entries] == list(range(1, step))
        ledger.write(entry(step))
    assert Ledger(tmp_path).last_entry("run") == entry(3)
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_altered_line_is_noticed(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write(entry(1))
    ledger.write(entry(2))
    path = tmp_path / "ledger.jsonl"
    path.write_text(path.read_text().replace('"size": 101', '"size": 1'))
    with pytest.raises(DataError, match=r"line 1 .* was altered"):
        Ledger(tmp_path)


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write(entry(1))
    ledger.write(entry(2))
    path = tmp_path / "ledger.jsonl"
    path.write_text(path.read_text()[:-20])
    again = Ledger(tmp_path)
    assert [e.step for e in again.entries] == [1]
    again.write(entry(2))
    assert [e.step for e in Ledger(tmp_path).entries] == [1, 2]
