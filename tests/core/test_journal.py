"""The journal: what was written is there, what was cut is dropped, what was altered is an error."""

import errno
import fcntl
import os
import threading

import pytest

from fedclust.core.errors import JournalError
from fedclust.core.file_locks import LOCK_PATIENCE
from fedclust.core.journal import ANSWER_RECORD, JOURNAL_HEADER, QUESTION_RECORD, Journal


def written(path, steps=3):
    journal = Journal(path)
    for step in range(1, steps + 1):
        journal.write(QUESTION_RECORD, step, b"question %d" % step)
        journal.write(ANSWER_RECORD, step, b"answer %d" % step)
    journal.close()
    return path.read_bytes()


def test_records_survive_reopening(tmp_path):
    written(tmp_path / "journal")
    journal = Journal(tmp_path / "journal")
    assert journal.recall(ANSWER_RECORD, 2) == b"answer 2"
    assert journal.recall(QUESTION_RECORD, 3) == b"question 3"
    assert journal.recall(ANSWER_RECORD, 4) is None
    assert journal.last_answered_step == 3
    journal.close()


def test_a_journal_cut_anywhere_keeps_its_whole_records_and_goes_on(tmp_path):
    data = written(tmp_path / "whole")
    path = tmp_path / "cut"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        journal = Journal(path)
        before = journal.last_answered_step
        journal.write(ANSWER_RECORD, 9, b"later")
        journal.close()
        again = Journal(path)
        assert again.recall(ANSWER_RECORD, 9) == b"later"
        assert again.recall(ANSWER_RECORD, before) == (b"answer %d" % before if before else None)
        again.close()


def test_every_altered_byte_is_noticed_and_nothing_is_erased(tmp_path):
    data = bytearray(written(tmp_path / "whole", steps=2))
    path = tmp_path / "altered"
    for at in range(len(data)):
        changed = data.copy()
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(JournalError):
            Journal(path)
        assert path.read_bytes() == changed


def test_two_cannot_write_at_once(tmp_path):
    journal = Journal(tmp_path / "journal")
    with pytest.raises(JournalError, match="another process uses"):
        Journal(tmp_path / "journal")
    journal.close()


def test_who_has_just_let_go_is_not_taken_for_another_process(tmp_path):
    journal = Journal(tmp_path / "journal")
    late = threading.Timer(LOCK_PATIENCE / 4, journal.close)
    late.start()
    Journal(tmp_path / "journal").close()
    late.join()


def test_a_disk_that_cannot_lock_is_not_taken_for_another_process(tmp_path, monkeypatch):
    def without_locks(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available"):
        Journal(tmp_path / "journal")


def test_another_file_is_not_a_journal(tmp_path):
    (tmp_path / "journal").write_text("dear diary, this is a long text")
    with pytest.raises(JournalError, match="not written by this version"):
        Journal(tmp_path / "journal")


def test_only_the_owner_can_read_it(tmp_path):
    written(tmp_path / "journal")
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "journal").read_bytes().startswith(JOURNAL_HEADER)
