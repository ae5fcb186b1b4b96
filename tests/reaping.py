"""A process that dies at a place of the tests' choice, and what must hold of secrets however often it dies."""

import os

from fedclust.core import journal as journals
from fedclust.core import wire
from fedclust.core.journal import Journal
from fedclust.engines.local_engine import LocalEngine
from fedclust.privacy import keys, masks
from fedclust.site.ledger import Ledger
from fedclust.site.server import SiteServer
from fedclust.site.vault import RunVault


class Killed(BaseException):
    """The process dies here."""


class Reaper:
    """Counts the places where a process may die, and kills at one of them."""

    def __init__(self, at=None):
        self.at, self.passed = at, 0

    def here(self):
        self.passed += 1
        return self.passed == self.at

    def check(self):
        if self.here():
            raise Killed


def around(monkeypatch, owner, name, reaper, torn=None):
    """Places before, after and, with `torn`, in the middle of a call."""
    plain = getattr(owner, name)

    def call(self, *args, **kwargs):
        reaper.check()
        if torn is not None and reaper.here():
            torn(self, *args)
            raise Killed
        answer = plain(self, *args, **kwargs)
        reaper.check()
        return answer

    monkeypatch.setattr(owner, name, call)


def torn_record(journal, kind, step, payload):
    frame = journals._FRAME.pack(kind, step, len(payload), journals._frame_checksum(kind, step, len(payload)))
    begun = (b"" if journal._sound_length else journals.JOURNAL_HEADER) + frame + payload[: len(payload) // 2]
    os.pwrite(journal._file.fileno(), begun, journal._sound_length)


def torn_line(ledger, entry):
    ledger._path.parent.mkdir(parents=True, exist_ok=True)
    with ledger._path.open("a") as file:
        file.write('{"run": "half a li')


def torn_state(desk, *_):
    desk._state_path.with_suffix(".new").write_bytes(b"half")


def torn_keys(vault, *_):
    vault._path.with_suffix(".new").write_bytes(b"half")


def reaped(monkeypatch, at):
    reaper = Reaper(at)
    around(monkeypatch, LocalEngine, "exchange", reaper)
    around(monkeypatch, Journal, "write", reaper, torn_record)
    around(monkeypatch, Ledger, "write", reaper, torn_line)
    around(monkeypatch, SiteServer, "_save_memory", reaper, torn_state)
    around(monkeypatch, RunVault, "_save_keys", reaper, torn_keys)
    return reaper


def nothing_hidden_twice(monkeypatch):
    """From here on no mask hides two different answers, and no key encrypts two different texts."""
    hidden = {}

    def once(kind, secret, text):
        assert hidden.setdefault((kind, secret), text) == text, f"a {kind} was used twice"

    shifted, locked = masks.add_mask, keys.encrypt

    def watched_shift(release, mask):
        once("mask", mask.tobytes(), wire.encode(release))
        return shifted(release, mask)

    def watched_lock(key, text, about):
        once("key", key, (text, about))
        return locked(key, text, about)

    monkeypatch.setattr(masks, "add_mask", watched_shift)
    monkeypatch.setattr(keys, "encrypt", watched_lock)
