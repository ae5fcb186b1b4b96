"""The networked engine greets sites, asks them, asks again, and checks every reply, over any link between machines.

A new transport only implements `Link`; versions, deadlines, suspension and stray replies are handled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol as Structural

from fedclust.core import wire
from fedclust.core.drive import Reply
from fedclust.core.envelope import REMEDIES, Answer, Call, Refusal, known_code
from fedclust.core.errors import RunFailed, Waiting, WireError
from fedclust.core.greeting import Greeting, Welcome, versions_differ
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Attendance
from fedclust.engines.outcome_log import OutcomeLog
from fedclust.engines.run_status import report_reply

RETRY_PAUSE_SECONDS = 0.5  # seconds before parties are asked again; a link may find at once that it can reach none
MAX_SHOWN_REFUSALS = 5  # refusals that the error shows in full
MAX_REPEATED_GREETINGS = 3  # how often a site that forgot a run is greeted again


class Link(Structural):
    """Carries bytes to parties and back, and does not interpret them."""

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:
        """Send each party its request and yield replies as they arrive, for at most `timeout` seconds.

        A link that must connect first may take longer, by a time that it bounds whatever the parties do. The link has
        checked the identity of the party that it yields. Replies to earlier requests may arrive too. A party that
        cannot be reached is left out, without an exception. If the same request is sent twice, a party may receive it
        twice.
        """

    def close(self, *, done: bool) -> None:
        """Close the link; with `done` the run is over, and sites need not wait for more."""


class NetworkedEngine:
    """Sites that a link reaches. Each is greeted with `run` and `study` before its first question.

    `greeted` names sites that an earlier process of the run has greeted. `without` names sites that are not asked at
    all. `forget_replies` is for a link that stores replies: it drops those of the given parties, so that they are asked
    again.
    """

    def __init__(
        self,
        link: Link,
        parties: tuple[PartyId, ...],
        *,
        run: str,
        study: str,
        attendance: Attendance | None = None,
        greeted: Iterable[PartyId] = (),
        without: Iterable[PartyId] = (),
        forget_replies: Callable[[Iterable[PartyId]], None] = lambda _: None,
    ) -> None:
        self.link = link
        self.parties = parties
        self.run, self.study = run, study
        self.attendance = attendance or Attendance()
        self._greeted, self._without = set(greeted), frozenset(without)
        self.forget_replies = forget_replies
        self.outcomes: OutcomeLog | None = None  # of a verified run

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        """Ask parties, and ask those that miss the deadline again while too few answered; leave out the rest."""
        here = self.attendance
        step = next(iter(calls.values())).step
        calls = {party: call for party, call in calls.items() if party not in self._without}
        patience = here.timeout if timeout is None else timeout
        waiting, replies = here.parties_to_ask(calls, quorum), dict[PartyId, Reply]()
        forgot, sent_again = dict.fromkeys(calls, 0), set[PartyId]()
        until = here.clock() + here.patience
        while waiting:
            self._greet_parties([party for party in waiting if party not in self._greeted], patience)
            asked = {party: calls[party] for party in waiting if party in self._greeted}
            resent = set[PartyId]()
            for party, reply in self._valid_replies(asked, patience):
                here.mark_answered(party, step)
                if (
                    isinstance(reply, Refusal)
                    and reply.code == "not-greeted"
                    and forgot[party] < MAX_REPEATED_GREETINGS
                ):
                    forgot[party] += 1
                    self._greeted.discard(party)
                    continue
                if self._must_send_outcomes_again(calls[party], party, reply, sent_again):
                    resent.add(party)
                    continue
                replies[party] = reply
                report_reply(here.notify, party, reply, step)
            late = [party for party in waiting if party not in replies]
            for party in late:
                if party not in resent and (not forgot[party] or party in self._greeted):
                    here.mark_missed(party, step)
            # A refusal is an answer: a party that refuses is not asked again, and the quorum may be lost at once.
            able = len(calls) - sum(isinstance(reply, Refusal) for reply in replies.values())
            if len(replies) >= quorum or able < quorum or (here.clock() >= until and not resent):
                break
            waiting = [party for party in calls if party not in replies]
            here.pause(min(RETRY_PAUSE_SECONDS, patience))
        return {party: replies[party] for party in calls if party in replies}

    def greet_all(self) -> None:
        """Greet all sites before the first question."""
        absent = self._greeted | self._without
        self._greet_parties([party for party in self.parties if party not in absent], self.attendance.timeout)

    def close(self, *, done: bool = False) -> None:
        if self.outcomes is not None:
            self.outcomes.close()
        self.link.close(done=done)

    def _valid_replies(self, calls: Mapping[PartyId, Call], timeout: float) -> Iterator[tuple[PartyId, Reply]]:
        """Replies to exactly these calls, one per party; late, duplicate and foreign ones are dropped and counted."""
        left = dict(calls)
        if not left:
            return
        requests = {party: self._encode_request(party, call) for party, call in calls.items()}
        for party, data in self.link.carry(requests, timeout=timeout):
            try:
                answer = wire.decode(Answer, data)
            except WireError:
                self.attendance.notify("dropped", site=party, kind="foreign")
                continue
            if answer.party != party or party not in calls:
                self.attendance.notify("dropped", site=party, kind="foreign")
            elif answer.call != calls[party].digest:
                self.attendance.notify("dropped", site=party, kind="late")
            elif party not in left:
                self.attendance.notify("dropped", site=party, kind="duplicate")
            else:
                del left[party]
                yield party, answer.to_reply()
            if not left:
                return

    def _encode_request(self, party: PartyId, call: Call) -> bytes:
        return call.wire_bytes if self.outcomes is None else self.outcomes.request_for(party, call)

    def _must_send_outcomes_again(self, call: Call, party: PartyId, reply: Reply, sent_again: set[PartyId]) -> bool:
        """Whether a site of a verified run lost its record of earlier steps; it then gets all of them, once."""
        lost = isinstance(reply, Refusal) and reply.code == "outcomes-missing"
        if not lost or self.outcomes is None or party in sent_again:
            return False
        sent_again.add(party)
        self.outcomes.send_all_again(party, call.step)
        self.forget_replies([party])
        return True

    def _greet_parties(self, parties: list[PartyId], timeout: float) -> None:
        """Greet parties; if some cannot take part, end the run with an error that names them."""
        greetings = {p: Greeting.for_party(p, run=self.run, study=self.study) for p in parties}
        left, noes = dict(greetings), list[str]()
        self._collect_welcomes(greetings, left, noes, timeout, max_refusals=1)
        if noes:
            with suppress(Waiting):  # also name other sites that have already refused
                self._collect_welcomes(greetings, left, noes, RETRY_PAUSE_SECONDS, max_refusals=len(parties))
            raise RunFailed(
                "; ".join(noes[:MAX_SHOWN_REFUSALS])
                + (f"; and {len(noes) - MAX_SHOWN_REFUSALS} more" if len(noes) > MAX_SHOWN_REFUSALS else "")
            )

    def _collect_welcomes(
        self,
        greetings: Mapping[PartyId, Greeting],
        left: dict[PartyId, Greeting],
        refusals: list[str],
        timeout: float,
        *,
        max_refusals: int,
    ) -> None:
        """Greet the parties in `left`, until `max_refusals` cannot take part; `refusals` collects the reasons."""
        if not left:
            return
        for party, data in self.link.carry({p: g.encode() for p, g in left.items()}, timeout=timeout):
            try:
                welcome = Welcome.decode(data)
            except WireError:
                self.attendance.notify("dropped", site=party, kind="foreign")
                continue
            if party not in left or welcome.run not in (self.run, ""):
                self.attendance.notify("dropped", site=party, kind="late" if party in greetings else "foreign")
                continue
            if no := self._check_welcome(left.pop(party), welcome):
                refusals.append(no)
            if not left or len(refusals) >= max_refusals:
                return

    def _check_welcome(self, greeting: Greeting, welcome: Welcome) -> str:
        """The reason why a party cannot take part; empty if it can, which is then recorded."""
        party, differ = greeting.party, versions_differ(greeting, welcome)
        if differ or welcome.code:
            code = "another-version" if differ else known_code(welcome.code)
            self.attendance.notify("refused", site=party, step=0, code=code)
            if not differ:
                return f"site '{party}' does not take part: {REMEDIES.get(code, REMEDIES['odd-answer'])}"
            return (
                f"site '{party}' runs fedclust {welcome.fedclust!a:.40} (wire format {welcome.wire}) and this "
                f"coordinator runs {greeting.fedclust} (wire format {greeting.wire}); install the same version on both"
            )
        self._greeted.add(party)
        self.attendance.mark_answered(party, 0)
        self.attendance.notify("met", site=party)
        return ""
