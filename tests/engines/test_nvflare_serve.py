"""A site under FLARE goes on taking calls of jobs, whatever became of an earlier one."""

import contextlib
import queue
import socket
import threading

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import Federation3

from fedclust.engines.nvflare_process import ADDRESS, KEY, call_home
from fedclust.engines.nvflare_serve import Served

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


def asked(data):
    """What a job gets that calls and asks; nothing, where nobody takes its call."""
    got = queue.SimpleQueue()

    def job():
        with call_home() as line:
            line.send_bytes(data)
            got.put(line.recv_bytes())

    threading.Thread(target=job, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        return got.get(timeout=10)


def test_a_job_that_dies_as_it_calls_leaves_its_site_able_to_hear_the_next(tmp_path, monkeypatch):
    own = Federation3.made(tmp_path)
    served = Served(own.folder / "kits" / "north", lambda data: data + b" heard")
    try:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as job:
                job.connect(served._home.environment[ADDRESS])
        for name in (ADDRESS, KEY):
            monkeypatch.setenv(name, served._home.environment[name])
        assert asked(b"asked") == b"asked heard"
    finally:
        served.close()
