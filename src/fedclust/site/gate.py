"""The only way out of a site: every answer passes these checks in this order and is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedclust.core import wire
from fedclust.core.effects import HANDLERS, Handler
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import AnswerChanged, KeysRefused, NotAsDeclared, OutOfBounds
from fedclust.core.release import Release, count_numbers
from fedclust.core.site_interface import Site
from fedclust.core.study_terms import StudyTerms
from fedclust.core.types import PartyId
from fedclust.privacy import sealed_messages, secure_aggregation
from fedclust.privacy.blind.blind_aggregation import AnswerEncryption
from fedclust.privacy.verified.group_key import read_group_key
from fedclust.privacy.verified.outcomes import prove_answer
from fedclust.site import answer_guards, class_checks, displayed_counts, guards
from fedclust.site.approval import Approval
from fedclust.site.contract_guard import question_of_call
from fedclust.site.ledger import Ledger, LedgerEntry
from fedclust.site.noise_budget import NoiseBudget
from fedclust.site.policy import Policy
from fedclust.site.run_agreements import RunAgreements
from fedclust.site.vault import RunVault, Vaults


class Gate:
    """Enforces a policy, first on the question and then, using the ledger, on the answer."""

    def __init__(
        self,
        party: PartyId,
        policy: Policy,
        ledger: Ledger,
        vaults: Callable[[], Vaults] | None = None,
        approval: Approval | None = None,
        *,
        noise_budget: NoiseBudget | None = None,
        split: str | None = None,
        method: str | None = None,
        floored: bool = False,
        terms: StudyTerms | None = None,
        agreements: RunAgreements | None = None,
    ) -> None:
        self.party = party
        self.policy = policy
        self.ledger = ledger
        self.vaults = vaults
        self.approval = approval
        self.noise_budget = noise_budget or NoiseBudget(policy)
        self.split, self.method, self.floored = split, method, floored
        self.terms, self.agreements = terms, agreements or RunAgreements()
        self.rules = guards.ALWAYS_GUARDS if policy.has_no_rules else guards.QUESTION_GUARDS

    @property
    def is_private(self) -> bool:
        """Whether every answer about rows carries noise, so that not even their number is read without it."""
        return bool(self.policy.epsilon) or (self.terms is not None and self.terms.is_private)

    def admit(self, call: Call, handler: Handler[Any, Any], rows: int) -> str | None:
        """Return the code to refuse a question with, or None."""
        question = self._question_context(call, handler, rows)
        code = next((code for guard in self.rules if (code := guard(question)) is not None), None)
        if code is None and self.approval is not None and not self.approval.covers(call, self.policy, question.tally):
            return "not-approved"
        if code is None and self.terms is not None and not self.policy.has_no_rules and not handler.is_foreign:
            self.agreements.remember(self.terms, call.run, question_of_call(handler, call.message))
        return code

    def receive(self, handler: Handler[Any, Any], release: Release) -> Release:
        """Return the answer that will be judged and sent.

        An answer of another package is encoded once and decoded again as a plain copy of its type, so that the rules
        and the coordinator read the same plain numbers, whatever the package did to the type since it was registered.
        """
        if not handler.is_foreign:
            return check_release_type(handler, release)
        try:
            return wire.copy_as(handler.received, check_release_type(handler, release))
        except Exception as error:
            raise NotAsDeclared(
                f"the answer of {handler.name} contains values that do not have the declared types; fix the handler"
            ) from error

    def judge(self, call: Call, handler: Handler[Any, Any], release: Release, site: Site) -> str | None:
        """Return the code to withhold an answer with, or None. A site that withholds one abstains for the rest of the
        run.
        """
        if not class_checks.has_valid_facts(release):
            return "not-as-declared"
        if call.masks is not None and call.want == "total":
            if not release.plausible([release], call.message)[0]:
                raise OutOfBounds(
                    "this answer is invalid (a number is not finite or beyond its bounds), so the site does not "
                    "add it to a masked sum"
                )
            rules = answer_guards.MASKED_ANSWER_GUARDS
        else:
            rules = answer_guards.ANSWER_GUARDS
        if self.policy.has_no_rules:
            return None
        rows = 0 if self.is_private or handler.reads == "nothing" else site.rows
        answer = answer_guards.AnswerContext(self._question_context(call, handler, rows), release, site)
        code = next((code for guard in rules if (code := guard(answer)) is not None), None)
        if code is not None:
            self.abstain(call, code)
        return code

    def abstain(self, call: Call, code: str) -> None:
        """Record that this site abstains for the rest of the run, unless it has no rules."""
        if not self.policy.has_no_rules:
            self.ledger.write(replace(self._make_entry(call), abstained=code))

    def _question_context(self, call: Call, handler: Handler[Any, Any], rows: int) -> guards.QuestionContext:
        everyone = None if self.policy.has_no_rules or self.vaults is None else frozenset(self.vaults().roster)
        tally = self.ledger.tally(call.run)
        study = self.split, self.method, self.floored
        return guards.QuestionContext(
            call, handler, self.policy, rows, tally, everyone, *study, self.terms, self.agreements
        )

    def _make_entry(self, call: Call, size: int = 0, answer: str = "") -> LedgerEntry:
        return LedgerEntry(
            call.run, call.step, call.handler, call.want, len(call.cohort), call.digest.hex(), size, answer
        )

    def record_as_sent(self, call: Call, release: Release, size: int) -> None:
        """Record an answer as if it had left, as the rehearsal of a plan does."""
        self.ledger.write(self._add_counts(self._make_entry(call, size), call, release))

    def _add_counts(self, entry: LedgerEntry, call: Call, release: Release) -> LedgerEntry:
        """Add to an entry what the rules and an approval count."""
        if self.policy.has_no_rules:
            return entry if self.approval is None else replace(entry, question=call.question_digest)
        opened = guards.parties_in_opened_sum(call) or ()
        masked = call.want == "total" and call.masks is not None
        return replace(
            entry,
            numbers=0 if masked else count_numbers(release, all_counts=HANDLERS[call.handler].is_foreign),
            question=call.question_digest if masked else answer_guards.variant_of_answer(call, release),
            cohort="\n".join(sorted(call.cohort)) if masked else "",
            opened="\n".join(sorted(opened)),
            gaps=guards.gap_rule_of_sum(call),
        )

    def seal(
        self,
        call: Call,
        release: Release,
        encryption: AnswerEncryption | None = None,
        *,
        proved_with: str | None = None,
    ) -> SealedAnswer:
        """Return the answer as it travels. It is in the ledger before the engine gets it.

        In a verified run, `proved_with` names the keys under which the answer is proved to the other sites.
        """
        covered = self.hide_and_round_counts(release)
        hidden = self._hide_release(call, covered)
        proof = self._prove(call, hidden, proved_with)
        sealed = (
            SealedAnswer(self.party, call.run, call.step, call.handler, hidden, call.masks, proof)
            if encryption is None
            else SealedAnswer(self.party, call.run, call.step, encryption.carrier, encryption.encrypt(hidden))
        )
        foreign = HANDLERS[call.handler].is_foreign and not self.policy.has_no_rules
        hashed = foreign or call.masks is not None  # fedclust's own answers do not differ if nothing masks them
        answer = hashlib.sha256(wire.encode(covered)).hexdigest() if hashed else ""
        entry = self._add_counts(self._make_entry(call, sealed.size, answer), call, release)
        before = self.ledger.last_entry(call.run)
        if before is not None and (before.step, before.call) == (entry.step, entry.call) and before.answer != answer:
            if foreign:
                self.abstain(call, "answer-changed")
            raise AnswerChanged(
                "the same question now has another answer, which was not sent, because both answers together would "
                "reveal the difference"
            )
        self.ledger.write(entry)
        return sealed

    def vault_for(self, run: str) -> RunVault:
        """Return the site's keys for a run."""
        if self.vaults is None:
            raise KeysRefused("this site has no identity (signing key); enrol it first")
        return self.vaults().vault_for(run)

    def _prove(self, call: Call, hidden: Release, name: str | None) -> bytes:
        """Return the proof of an answer as it leaves, for the other sites."""
        if name is None:
            return b""
        return prove_answer(hidden, call, self.party, read_group_key(self.vault_for(call.run), name))

    def _hide_release(self, call: Call, release: Release) -> Release:
        """Return the release as the coordinator may see it: messages sealed for their recipients, sums masked."""
        if call.masks is None or call.want == "each":
            return release
        hide = sealed_messages.seal_messages if call.want == "relay" else secure_aggregation.mask_release
        return hide(release, call, self.vault_for(call.run), self.party)

    def hide_and_round_counts(self, release: Release) -> Release:
        """Return the release with small displayed counts hidden and the others rounded."""
        shown = {name: d for name, d in release.schema().items() if d.combine == "each" and d.kind == "counts"}
        if not shown or self.policy.has_no_rules:
            return release
        changed = {}
        for name, disclosure in shown.items():
            counts = release.field_value(name)
            if disclosure.cells:
                counts = displayed_counts.hide_small_counts(counts, self.policy.min_cell)
            changed[name] = (
                displayed_counts.round_counts(counts, self.policy.rounding) if self.policy.rounding else counts
            )
        return replace(release, **changed)


def check_release_type(handler: Handler[Any, Any], release: Release) -> Release:
    """Return the answer if it is of the type that its handler declares."""
    if type(release) not in (handler.release, handler.received):
        raise TypeError(
            f"{handler.name} returned a type other than {handler.release.__name__}, which it declares; correct "
            "the handler"
        )
    return release
