"""A site under FLARE goes on taking calls of jobs, whatever became of an earlier one."""

import contextlib
import queue
import socket
import threading

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import Federation3

from fedclust.engines.nvflare.child_processes import LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE, connect_to_listener
from fedclust.engines.nvflare.nvflare_serve import SiteClient
from fedclust.engines.nvflare.startup_kit import Kit

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


def asked(data):
    """What a job gets that calls and asks; nothing, where nobody takes its call."""
    got = queue.SimpleQueue()

    def job():
        with connect_to_listener() as line:
            line.send_bytes(data)
            got.put(line.recv_bytes())

    threading.Thread(target=job, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        return got.get(timeout=10)


@pytest.fixture
def serving(tmp_path, monkeypatch):
    """A site that answers by `answer_message`, and whom jobs of this process call."""
    made = []

    def serve(hear):
        kit = Kit("site", "north", "calls", "", "localhost", 1, {"north": "north"})
        kit.write(tmp_path)
        made.append(SiteClient(tmp_path, hear))
        for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
            monkeypatch.setenv(name, made[-1]._listener.environment[name])

    yield serve
    for served in made:
        served.close()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("whatever it is")])
def test_what_goes_wrong_at_a_site_is_said_there_answered_with_nothing_and_does_not_end_the_job(error, serving, capsys):
    def hear(data):
        if data == b"first":
            raise error
        return data + b" heard"

    serving(hear)
    with connect_to_listener() as line:
        line.send_bytes(b"first")
        assert line.poll(10)
        assert line.recv_bytes() == b""
        line.send_bytes(b"second")
        assert line.recv_bytes() == b"second heard"
    said = capsys.readouterr().err
    assert said == f"fedclust: this site could not answer ({type(error).__name__}: {error})\n"


def test_a_job_that_dies_as_it_calls_leaves_its_site_able_to_hear_the_next(tmp_path, monkeypatch):
    own = Federation3.made(tmp_path)
    served = SiteClient(own.folder / "kits" / "north", lambda data: data + b" heard")
    try:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as job:
                job.connect(served._listener.environment[LINE_ADDRESS_VARIABLE])
        for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
            monkeypatch.setenv(name, served._listener.environment[name])
        assert asked(b"asked") == b"asked heard"
    finally:
        served.close()
