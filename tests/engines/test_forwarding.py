"""A door that leads to a port of loopback, shut and opened."""

import socket

import pytest

from fedclust.core.errors import StudyError
from fedclust.engines.forwarding import Forwarder


@pytest.fixture
def echo():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_what_comes_to_the_door_goes_on_and_what_comes_back_returns(echo):
    with Forwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door, socket.create_connection(door.address, 5) as line:
        far, _ = echo.accept()
        line.sendall(b"there")
        assert far.recv(16) == b"there"
        far.sendall(b"and back")
        assert line.recv(16) == b"and back"
        far.close()
        assert line.recv(16) == b""


def test_a_shut_door_cuts_off_who_is_through_and_lets_nobody_in_until_it_is_open_again(echo):
    with Forwarder(("127.0.0.1", 0), echo.getsockname()[1]) as door:
        with socket.create_connection(door.address, 5) as line:
            far, _ = echo.accept()
            door.shut()
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


def test_an_address_that_is_not_ours_is_refused_in_words():
    with pytest.raises(StudyError, match=r"cannot listen on 192\.0\.2\.1:9"):
        Forwarder(("192.0.2.1", 9), 9)
