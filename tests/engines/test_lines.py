"""The line between FLARE's job and the process that began it: ended from one thread while another reads it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedclust.engines.nvflare_process import ADDRESS, KEY, Home, call_home, hang_up


@pytest.fixture
def line(monkeypatch):
    """Both ends of a line."""
    home = Home()
    for name in (ADDRESS, KEY):
        monkeypatch.setenv(name, home.environment[name])
    with ThreadPoolExecutor(1) as pool:
        far = pool.submit(call_home)
        near = home.listener.accept()
        yield near, far.result()
    home.close()


def ends(line):
    """Whether whoever reads the line learns that it is over."""
    over = threading.Event()

    def read():
        try:
            line.recv_bytes()
        except EOFError:
            over.set()

    threading.Thread(target=read, daemon=True).start()
    return over


def test_to_hang_up_wakes_the_thread_that_reads_and_tells_the_far_end(line):
    near, far = line
    here, there = ends(near), ends(far)
    assert not here.wait(0.2)
    hang_up(near)
    assert here.wait(5)
    assert there.wait(5)


def test_a_line_that_is_over_can_be_hung_up_again(line):
    near, _ = line
    near.close()
    hang_up(near)
