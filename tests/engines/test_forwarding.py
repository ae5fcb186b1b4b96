"""A door that leads to a port of loopback, shut and opened."""

import errno
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from fedclust.core.errors import StudyError
from fedclust.engines import port_forwarding
from fedclust.engines.port_forwarding import PortForwarder


@pytest.fixture
def echo():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_what_comes_to_the_door_goes_on_and_what_comes_back_returns(echo):
    with (
        PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door,
        socket.create_connection(door.address, 5) as line,
    ):
        far, _ = echo.accept()
        line.sendall(b"there")
        assert far.recv(16) == b"there"
        far.sendall(b"and back")
        assert line.recv(16) == b"and back"
        far.close()
        assert line.recv(16) == b""


def test_a_shut_door_cuts_off_who_is_through_and_lets_nobody_in_until_it_is_open_again(echo):
    with PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door:
        with socket.create_connection(door.address, 5) as line:
            far, _ = echo.accept()
            door.cut_off()
            assert line.recv(16) == b""
            far.close()
        with socket.create_connection(door.address, 5) as line:
            assert line.recv(16) == b""
        door.reopen()
        with socket.create_connection(door.address, 5) as line:
            far, _ = echo.accept()
            far.sendall(b"again")
            assert line.recv(16) == b"again"
            far.close()


def test_who_is_being_let_in_while_the_door_is_shut_is_cut_off_too(echo, monkeypatch):
    plain = socket.create_connection

    def shut_meanwhile(address, timeout):
        far = plain(address, timeout)
        door.cut_off()
        return far

    with PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door, plain(door.address, 5) as first:
        echo.accept()[0].close()
        assert first.recv(16) == b""
        monkeypatch.setattr(socket, "create_connection", shut_meanwhile)
        with plain(door.address, 5) as line:
            assert line.recv(16) == b""
        echo.accept()[0].close()


def test_a_closed_door_is_gone_its_address_free_and_its_thread_over(echo):
    before, port = set(threading.enumerate()), echo.getsockname()[1]
    address = ("127.0.0.1", 0)
    for _ in range(5):
        with PortForwarder(address, port) as door, socket.create_connection(door.address, 5):
            address = door.address
            echo.accept()[0].close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
    give_up = time.monotonic() + 10
    while left := set(threading.enumerate()) - before:  # one that is just being made cannot be joined yet
        assert time.monotonic() < give_up, left
        time.sleep(0.01)


def test_an_address_that_is_not_ours_is_refused_in_words():
    with pytest.raises(StudyError, match=r"cannot listen on 192\.0\.2\.1:9"):
        PortForwarder(("192.0.2.1", 9), 9)


def test_a_machine_without_room_for_one_more_connection_does_not_close_the_door(echo, monkeypatch):
    plain, tries = socket.socket.accept, []

    def full_at_first(self):
        if self.getsockname() == door.address and len(tries) < 3:
            tries.append(errno.EMFILE)
            raise OSError(errno.EMFILE, "too many open files")
        return plain(self)

    with PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door:
        with socket.create_connection(door.address, 5):  # wakes the door, which is waiting already
            echo.accept()[0].close()
        monkeypatch.setattr(socket.socket, "accept", full_at_first)
        with socket.create_connection(door.address, 5) as line:
            far, _ = plain(echo)
            far.sendall(b"in the end")
            line.settimeout(5)
            assert line.recv(16) == b"in the end"
            far.close()


def test_no_more_lines_are_held_than_there_are_places(echo, monkeypatch):
    monkeypatch.setattr(port_forwarding, "MAX_CONNECTIONS", 2)
    echo.listen(8)
    with PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door, ExitStack() as held:
        first = [held.enter_context(socket.create_connection(door.address, 5)) for _ in range(2)]
        for _ in first:
            held.enter_context(echo.accept()[0])
        with socket.create_connection(door.address, 5) as third:
            assert third.recv(16) == b""
        first[0].sendall(b"still there")


def test_who_says_nothing_is_put_out(echo, monkeypatch):
    monkeypatch.setattr(port_forwarding, "FIRST_BYTE_SECONDS", 0.2)
    with (
        PortForwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door,
        socket.create_connection(door.address, 5) as line,
    ):
        far, _ = echo.accept()
        assert line.recv(16) == b""
        far.close()
