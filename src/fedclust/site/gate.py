"""The one door out of a site. Whatever leaves passes here, in this order, and is written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedclust.core import wire
from fedclust.core.envelope import Call, Sealed
from fedclust.core.errors import AnswerChanged, KeysRefused
from fedclust.core.protocol import Handler
from fedclust.core.release import Release
from fedclust.core.types import PartyId
from fedclust.privacy import letters, secagg
from fedclust.privacy.blind import Veil
from fedclust.site import guards
from fedclust.site.ledger import Entry, Ledger
from fedclust.site.policy import Policy
from fedclust.site.vault import RunVault, Vaults


class Gate:
    """Enforces a policy: first on the question, then, by what it writes down, on the answer."""

    def __init__(
        self, party: PartyId, policy: Policy, ledger: Ledger, vaults: Callable[[], Vaults] | None = None
    ) -> None:
        self.party = party
        self.policy = policy
        self.ledger = ledger
        self.vaults = vaults

    def admit(self, call: Call, handler: Handler[Any, Any], rows: int) -> str | None:
        """The code to refuse a question with, or None."""
        question = guards.Question(call, handler, self.policy, rows)
        return next((code for guard in guards.ENTRY if (code := guard(question)) is not None), None)

    def seal(self, call: Call, handler: Handler[Any, Any], release: Release, veil: Veil | None = None) -> Sealed:
        """What travels. The ledger has it before the engine does."""
        if type(release) is not handler.release:
            raise TypeError(f"{handler.name} declared {handler.release.__name__}")
        covered = self._covered(release)
        hidden = self._hidden(call, covered)
        sealed = (
            Sealed(self.party, call.run, call.step, call.handler, hidden, call.masks)
            if veil is None
            else Sealed(self.party, call.run, call.step, veil.carrier, veil.over(hidden))
        )
        answer = "" if call.masks is None else hashlib.sha256(wire.encode(covered)).hexdigest()
        entry = Entry(
            call.run, call.step, call.handler, call.want, len(call.cohort), call.digest.hex(), sealed.size, answer
        )
        before = self.ledger.last(call.run)
        if before is not None and (before.step, before.call) == (entry.step, entry.call) and before.answer != answer:
            raise AnswerChanged("the same question would get another answer under the same mask")
        self.ledger.write(entry)
        return sealed

    def vault(self, run: str) -> RunVault:
        """The site's keys of a run."""
        if self.vaults is None:
            raise KeysRefused("this site has no identity; enrol it first")
        return self.vaults().of(run)

    def _hidden(self, call: Call, release: Release) -> Release:
        """The release as the coordinator may see it: letters sealed to their recipients, sums under masks."""
        if call.masks is None or call.want == "each":
            return release
        hide = letters.sealed if call.want == "relay" else secagg.masked
        return hide(release, call, self.vault(call.run), self.party)

    def _covered(self, release: Release) -> Release:
        """The release with small counts of rows hidden."""
        cells = [name for name, disclosure in release.schema().items() if disclosure.cells]
        if not cells or not self.policy.min_rows:
            return release
        return replace(release, **{n: guards.hide_small(getattr(release, n), self.policy.min_rows) for n in cells})
