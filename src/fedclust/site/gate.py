"""The one door out of a site. Whatever leaves passes here, in this order, and is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedclust.core.envelope import Call, Sealed
from fedclust.core.protocol import Handler
from fedclust.core.release import Release
from fedclust.core.types import PartyId
from fedclust.site import guards
from fedclust.site.ledger import Entry, Ledger
from fedclust.site.policy import Policy


class Gate:
    """Enforces a policy: first on the question, then, by what it writes down, on the answer."""

    def __init__(self, party: PartyId, policy: Policy, ledger: Ledger) -> None:
        self.party = party
        self.policy = policy
        self.ledger = ledger

    def admit(self, call: Call, handler: Handler[Any, Any], rows: int) -> str | None:
        """The code to refuse a question with, or None."""
        question = guards.Question(call, handler, self.policy, rows)
        return next((code for guard in guards.ENTRY if (code := guard(question)) is not None), None)

    def seal(self, call: Call, handler: Handler[Any, Any], release: Release) -> Sealed:
        """What travels. The ledger has it before the engine does."""
        if type(release) is not handler.release:
            raise TypeError(f"{handler.name} declared {handler.release.__name__}")
        sealed = Sealed(self.party, call.run, call.step, call.handler, self._covered(release))
        entry = Entry(call.run, call.step, call.handler, call.want, len(call.cohort), call.digest.hex(), sealed.size)
        self.ledger.write(entry)
        return sealed

    def _covered(self, release: Release) -> Release:
        """The release with small counts of rows hidden."""
        cells = [name for name, disclosure in release.schema().items() if disclosure.cells]
        if not cells or not self.policy.min_rows:
            return release
        return replace(release, **{n: guards.hide_small(getattr(release, n), self.policy.min_rows) for n in cells})
