"""A site that cannot read or keep a greeting says so with a code, and to its own people why."""

import resource
import signal
from contextlib import contextmanager

import pytest

from fedclust.core.envelope import REMEDIES
from fedclust.core.greeting import Greeting, Welcome
from fedclust.site.approval import digest_study
from fedclust.site.session import SiteSession

STUDY = 'name = "heart"\n'
RUN = f"1f-{digest_study(STUDY)}"


def greeted(door, run=RUN, study=STUDY):
    return Welcome.decode(door.answer_message(Greeting.for_party("north", run=run, study=study).encode()))


@pytest.fixture
def door(tmp_path):
    return SiteSession("north", tmp_path, lambda _: None)


@contextmanager
def full():
    """A disk on which no file can grow."""
    before, heeded = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heeded)


def test_a_greeting_that_cannot_be_kept_is_refused_with_a_code_and_noted(door, tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    assert greeted(door).code == "failed"
    assert isinstance(door.last_error, FileExistsError)
    assert (tmp_path / "trouble.log").read_text().startswith("failed: FileExistsError: ")
    (tmp_path / "runs").unlink()
    assert greeted(door).code == ""


def test_where_there_is_no_room_for_a_note_either_the_reason_is_said_on_the_terminal(door, tmp_path, capsys):
    with full():
        assert greeted(door).code == "failed"
    said = capsys.readouterr().err
    assert said.startswith(f"fedclust: cannot write {tmp_path / 'trouble.log'}: failed: OSError: ")
    assert greeted(door).code == ""


@pytest.mark.parametrize("words", [{"study": "\ud800"}, {"run": "\ud800" + RUN}])
def test_a_greeting_of_no_proper_text_is_refused_and_nothing_is_raised(door, words):
    assert greeted(door, **words).code == "failed"
    assert isinstance(door.last_error, UnicodeEncodeError)


def test_each_refusal_is_told_in_its_own_words(door, tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    assert greeted(door).code == "failed"
    (tmp_path / "runs").unlink()
    assert greeted(door, study="other").code == "another-study"
    first, second = door.refusals
    assert "File exists" in first
    assert second == REMEDIES["another-study"]
