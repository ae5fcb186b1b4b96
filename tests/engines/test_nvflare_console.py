"""The coordinator's session with its own FLARE server, which ends it when nothing was asked for half an hour."""

from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from nvflare.fuel.flare_api.api_spec import NoConnection, SessionExpired

from fedclust.core.errors import RunFailed
from fedclust.engines.nvflare import admin_console
from fedclust.engines.nvflare.admin_console import AdminConsole

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


class Session:
    """Answers so often, then is over."""

    def __init__(self, often):
        self.left = often

    def get_connected_client_list(self):
        if not self.left:
            raise SessionExpired("idle for too long")
        self.left -= 1
        return [SimpleNamespace(name="north", last_connect_time=1.0)]

    def close(self):
        self.left = 0


def console(monkeypatch, sessions):
    made = object.__new__(AdminConsole)
    made._kit, made._session = "", sessions.pop(0)
    monkeypatch.setattr(admin_console, "QUERY_BACKOFF_SECONDS", 0.0)

    def another(*_, **__):
        if not sessions:
            raise NoConnection("nobody there")
        return sessions.pop(0)

    monkeypatch.setattr(admin_console, "new_secure_session", another)
    return made


def test_a_session_that_expired_is_opened_anew(monkeypatch):
    ours = console(monkeypatch, [Session(1), Session(0), Session(5)])
    assert [ours.last_contacts() for _ in range(3)] == [{"north": 1.0}] * 3


def test_a_server_that_is_gone_is_said_to_be(monkeypatch):
    ours = console(monkeypatch, [Session(0)])
    with pytest.raises(RunFailed, match="does not answer the coordinator"):
        ours.last_contacts()
