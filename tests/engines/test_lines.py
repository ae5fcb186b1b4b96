"""The line between FLARE's job and the process that began it: ended from one thread while another reads it."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client

import pytest

from fedclust.engines.nvflare import child_processes
from fedclust.engines.nvflare.child_processes import (
    LINE_ADDRESS_VARIABLE,
    LINE_KEY_VARIABLE,
    JobListener,
    connect_to_listener,
    shut_down_line,
)


@pytest.fixture
def line(monkeypatch):
    """Both ends of a line."""
    home = JobListener()
    for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
        monkeypatch.setenv(name, home.environment[name])
    with ThreadPoolExecutor(1) as pool:
        far = pool.submit(connect_to_listener)
        near = next(home.accept_lines())
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
    shut_down_line(near)
    assert here.wait(5)
    assert there.wait(5)


def test_a_line_that_is_over_can_be_hung_up_again(line):
    near, _ = line
    near.close()
    shut_down_line(near)


def test_who_calls_and_shows_no_key_does_not_keep_others_waiting_for_long(monkeypatch):
    monkeypatch.setattr(child_processes, "AUTHENTICATION_SECONDS", 0.3)
    home = JobListener()
    for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
        monkeypatch.setenv(name, home.environment[name])
    with Client(home.environment[LINE_ADDRESS_VARIABLE]) as silent, ThreadPoolExecutor(1) as pool:
        far = pool.submit(connect_to_listener)
        near = next(home.accept_lines())
        near.send_bytes(b"at last")
        with far.result(5) as line:
            assert line.recv_bytes() == b"at last"
        silent.recv_bytes()  # the challenge, which it did not answer
        with pytest.raises(EOFError):
            silent.recv_bytes()
        near.close()
    home.close()


def test_a_machine_that_cannot_take_a_call_says_so_once_and_goes_on(monkeypatch, capsys):
    home = JobListener()
    for name in (LINE_ADDRESS_VARIABLE, LINE_KEY_VARIABLE):
        monkeypatch.setenv(name, home.environment[name])
    plain, tries = home.listener.accept, []

    def full_at_first():
        if len(tries) < 3:
            tries.append(errno.EMFILE)
            raise OSError(errno.EMFILE, "Too many open files")
        return plain()

    monkeypatch.setattr(child_processes, "ACCEPT_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(home.listener, "accept", full_at_first)
    with ThreadPoolExecutor(1) as pool:
        far = pool.submit(connect_to_listener)
        next(home.accept_lines()).close()
        far.result(5).close()
    home.close()
    said = "fedclust: cannot accept a connection from NVIDIA FLARE (Too many open files); retrying\n"
    assert capsys.readouterr().err == said


def test_who_has_another_key_is_turned_away(monkeypatch):
    home = JobListener()
    monkeypatch.setenv(LINE_ADDRESS_VARIABLE, home.environment[LINE_ADDRESS_VARIABLE])
    monkeypatch.setenv(LINE_KEY_VARIABLE, bytes(32).hex())
    with ThreadPoolExecutor(2) as pool:
        wrong = pool.submit(connect_to_listener)
        near = pool.submit(next, home.accept_lines())
        assert wrong.exception(5) is not None
        monkeypatch.setenv(LINE_KEY_VARIABLE, home.environment[LINE_KEY_VARIABLE])
        connect_to_listener().close()
        near.result(5).close()
    home.close()
