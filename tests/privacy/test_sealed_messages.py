"""Sealed messages go from site to site; the coordinator that carries them reads none."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedclust as fc
from fedclust.core import wire
from fedclust.core.effects import HANDLERS, SealedMessages, handler, relay
from fedclust.core.envelope import Refusal, SealedAnswer
from fedclust.core.release import Release, check_declarations, facts, sealed_weights
from fedclust.core.site_interface import Site


@dataclass(frozen=True)
class Recipients:
    """Who is written to."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """What the messages are about; everybody may read it."""

    word: str


@dataclass(frozen=True)
class Written(Release):
    greetings: dict[str, bytes] = sealed_weights("a greeting to each")


@dataclass(frozen=True)
class Lengths(Release):
    count: int = facts("how many messages came", most=8)


NOTE = wire.encode(Subject("read"))
HEARD: dict[str, bytes] = {}  # what a site read, as nobody else may see it


@pytest.fixture
def post():
    HEARD.clear()

    def write(site: Site, ask: Recipients) -> Written:
        return Written({to: f"{site.party} to {to}".encode() for to in ask.names})

    def read(site: Site, received: SealedMessages) -> Lengths:
        assert wire.decode(Subject, received.note) == Subject("read")
        HEARD[site.party] = b"; ".join(received.messages[name] for name in sorted(received.messages))
        return Lengths(len(received.messages))

    yield handler(releases=Written)(write), handler(releases=Lengths, max_distinct=1, note=Subject)(read)
    for name in ("test_sealed_messages.write", "test_sealed_messages.read"):
        del HANDLERS[name]


def federation(mode):
    return fc.Federation.local({name: np.zeros((3, 1)) for name in "abc"}, aggregation=mode)


ROUTES = {"a": ("b", "c"), "b": ("c",), "c": ("a",)}


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_messages_arrive_where_they_are_sent(post, mode):
    write, read = post
    answers, _ = federation(mode).run(relay(write, Recipients(("a", "b", "c")), read, NOTE, ROUTES))
    assert {p: a.count for p, a in answers.items()} == {"a": 1, "b": 1, "c": 2}
    assert HEARD == {"a": b"c to a", "b": b"a to b", "c": b"a to c; b to c"}


def test_no_message_passes_in_clear_and_none_opens_elsewhere(post):
    write, read = post
    fed = federation("plain")
    seen = []

    class Watch:
        parties = fed.engine.parties

        def exchange(self, calls, *, timeout, quorum):
            replies = fed.engine.exchange(calls, timeout=timeout, quorum=quorum)
            seen.append((calls, replies))
            return replies

    fed.use_engine(Watch())
    fed.run(relay(write, Recipients(("a", "b", "c")), read, NOTE, ROUTES))
    written = next(r for c, r in seen if c["a"].handler == "test_sealed_messages.write")
    assert all(isinstance(r, SealedAnswer) for r in written.values())
    assert all(b" to " not in text for r in written.values() for text in r.release.greetings.values())
    call = next(c for c, _ in seen if c["a"].handler == "test_sealed_messages.read")["c"]
    text = call.message.messages["a"]
    for number, (reader, mail) in enumerate(
        [
            ("b", {"a": text}),  # to someone else
            ("c", {"b": text}),  # from someone else
            ("c", {"a": text[:-1] + bytes([text[-1] ^ 1])}),
            ("c", {"a": text[:5]}),
            ("c", {"stranger": text}),
        ]
    ):
        forged = replace(call, step=call.step + 1 + number, message=SealedMessages(mail, NOTE))
        assert fed.local_sites[reader].answer(forged) == Refusal(reader, "keys-refused")
    assert isinstance(fed.local_sites["c"].answer(replace(call, step=call.step + 20)), SealedAnswer)


def test_messages_without_keys_do_not_leave(post):
    fed = federation("plain")
    from fedclust.core.envelope import Call

    call = Call(fed.run_id, 1, "test_sealed_messages.write", Recipients(("b",)), "relay", ("a", "b", "c"))
    assert fed.local_sites["a"].answer(call) == Refusal("a", "not-a-sum")
    assert fed.local_sites["a"].answer(replace(call, want="each", step=2)) == Refusal("a", "not-a-sum")


def test_an_answer_holds_messages_in_one_field_whatever_its_name():
    @dataclass(frozen=True)
    class Two(Release):
        first: dict[str, bytes] = sealed_weights("a greeting to each")
        second: dict[str, bytes] = sealed_weights("another greeting to each")

    with pytest.raises(TypeError, match="in two fields"):
        check_declarations(Two)
    assert Written({"b": b"x"}).messages_by_recipient() == {"b": b"x"}
