"""What stands in for the real things while a plan is rehearsed: an engine that records, other rows, the site's gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedclust.app.study.study_parts import Study
from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import NotAsDeclared
from fedclust.core.release import Release
from fedclust.core.types import Array, PartyId
from fedclust.privacy.keys import Identity
from fedclust.site.approval import digest_study
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.policy import Policy
from fedclust.site.site_data import HandlerContext, SiteData, missing_rule_of
from fedclust.site.sources import DerivedSource
from fedclust.site.vault import Vaults


class RecordingEngine:
    """An engine that records questions and answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.exchanges: list[tuple[Call, Release]] = []

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return self.engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.exchanges += [(calls[p], reply.release) for p, reply in replies.items() if isinstance(reply, SealedAnswer)]
        return replies


class OtherRows(DerivedSource):
    """Different rows of the same kind: every second row, divided by eight, so that bounds still hold."""

    def blocks(self) -> Iterator[Array]:
        return (block[:, ::2] / 8 for block in self.source.blocks())

    def ids(self) -> Any:
        ids = self.source.ids()
        return None if ids is None else ids[::2]


class RehearsalGate:
    """The site's gate, used as in a real run, with the same cohort and masks; nothing is sent."""

    def __init__(self, study: Study, site_data: SiteData, policy: Policy) -> None:
        self.mode = study.aggregation.mode
        self.cohort = tuple(site.name for site in study.sites)
        self.run = f"plan-{digest_study(study.text)}"
        self.site_data = site_data
        everyone = Vaults(Identity.new(), dict.fromkeys(self.cohort, b""))
        self.gate = Gate(site_data.party, policy, Ledger(), lambda: everyone)

    @property
    def has_abstained(self) -> bool:
        """Whether the site has abstained."""
        return self.gate.ledger.tally(self.run).abstained is not None

    def is_masked(self, call: Call) -> bool:
        return self.mode != "plain" and call.want == "total"

    def judge_answer(self, call: Call, release: Release) -> str | None:
        """Return the code of the refusal, or None."""
        handler = HANDLERS[call.handler]
        masks = "lasting-1" if self.is_masked(call) else None
        real = replace(call, run=self.run, cohort=self.cohort, masks=masks, is_encrypted=self.mode == "blind")
        context = HandlerContext(self.site_data, (0, call.step), {}, missing_rule_of(handler, call.message))
        try:
            release = self.gate.receive(handler, release)
        except NotAsDeclared:
            return "not-as-declared"
        code = self.gate.admit(real, handler, context.rows) or self.gate.judge(real, handler, release, context)
        if code is None:
            self.gate.record_as_sent(real, release, wire.encoded_size(release))
        return code
