"""What travels between the coordinator and a site: a call, and a sealed answer or a refusal."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from fedclust.core import wire
from fedclust.core.effects import HANDLERS, Want
from fedclust.core.errors import NotFinite, WireError
from fedclust.core.types import PartyId


@dataclass(frozen=True)
class Envelope:
    """A call or an answer in its encoded form; `body` is a message of the handler's own type."""

    run: str
    step: int
    handler: str
    want: str
    cohort: str  # names, one per line: thousands of them are read at once
    masks: str | None
    body: bytes
    proof: bytes = b""  # of an answer, for the other sites of a verified run


@dataclass(frozen=True)
class EarlierOutcomes:
    """What became of the steps of a verified run before a call, from step `first` on, as far as it is sent now."""

    first: int
    outcomes: tuple[bytes, ...]


NO_OUTCOMES = EarlierOutcomes(0, ())


@dataclass(frozen=True)
class OpenedCall:
    """A call of a verified run, with the outcomes of earlier steps that its site may lack."""

    earlier: EarlierOutcomes
    call: bytes


@dataclass(frozen=True)
class Call:
    """One question of a run. The same object goes to every party that gets the same message."""

    run: str
    step: int
    handler: str
    message: Any
    want: Want
    cohort: tuple[PartyId, ...]
    # the name of the keys that hide the answer, or that open the sealed messages in the question
    masks: str | None = None
    is_encrypted: bool = False  # it arrived encrypted, and the coordinator cannot read it
    earlier: EarlierOutcomes = NO_OUTCOMES  # what came with it; not part of the question

    @cached_property
    def wire_bytes(self) -> bytes:
        body = wire.encode(self.message)
        cohort = "\n".join(self.cohort)
        return wire.encode(Envelope(self.run, self.step, self.handler, self.want, cohort, self.masks, body))

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.wire_bytes).digest()

    @cached_property
    def question_digest(self) -> str:
        """A digest of what is asked, independent of the step and of the parties."""
        return hashlib.sha256(self.handler.encode() + b"\0" + wire.encode(self.message)).hexdigest()[:32]

    @classmethod
    def decode(cls, data: bytes) -> Call:
        e = wire.decode(Envelope, data)
        if e.want not in ("total", "each", "relay") or e.handler not in HANDLERS:
            raise WireError(
                "the call asks for a handler that this version does not know; both sides must run "
                "the same version of fedclust"
            )
        cohort = tuple(e.cohort.split("\n"))
        if len(set(cohort)) != len(cohort):
            raise WireError("the call lists a party twice in its cohort (the sites whose answers are added)")
        message = wire.decode(HANDLERS[e.handler].message, e.body)
        return cls(e.run, e.step, e.handler, message, cast("Want", e.want), cohort, e.masks)


@dataclass(frozen=True)
class SealedAnswer:
    """An answer that passed the gate; only the gate builds one."""

    party: PartyId
    run: str
    step: int
    handler: str
    release: Any
    masks: str | None = None
    proof: bytes = b""  # that a site made it, for the other sites of a verified run

    @cached_property
    def wire_bytes(self) -> bytes:
        body = wire.encode(self.release)
        envelope = Envelope(self.run, self.step, self.handler, "sealed", self.party, self.masks, body, self.proof)
        return wire.encode(envelope)

    @classmethod
    def decode(cls, data: bytes) -> SealedAnswer:
        e = wire.decode(Envelope, data)
        if e.want != "sealed" or e.handler not in HANDLERS:
            raise WireError(
                "the answer is for a handler that this version does not know; both sides must run "
                "the same version of fedclust"
            )
        release = wire.decode(HANDLERS[e.handler].release, e.body)
        return cls(e.cohort, e.run, e.step, e.handler, release, e.masks, e.proof)

    @cached_property
    def size(self) -> int:
        """The size of the answer in bytes, as the ledger counts it."""
        return wire.encoded_size(self.release)


@dataclass(frozen=True)
class Refusal:
    """A site's refusal. It carries a code and never a text, because the message of an exception may quote data."""

    party: PartyId
    code: str


@dataclass(frozen=True)
class Answer:
    """A site's reply between machines: the digest of the call that it answers, and either a sealed answer or a code."""

    party: str
    call: bytes
    sealed: bytes | None
    code: str

    @classmethod
    def from_reply(cls, call_digest: bytes, reply: SealedAnswer | Refusal) -> Answer:
        """Wrap the reply to a call with this digest."""
        if isinstance(reply, SealedAnswer):
            return cls(reply.party, call_digest, reply.wire_bytes, "")
        return cls(reply.party, call_digest, None, reply.code)

    def to_reply(self) -> SealedAnswer | Refusal:
        """Return the reply; an answer that cannot be read becomes a refusal by its party."""
        if self.sealed is None:
            return Refusal(self.party, known_code(self.code))
        try:
            return SealedAnswer.decode(self.sealed)
        except NotFinite:
            return Refusal(self.party, "impossible-answer")
        except WireError:
            return Refusal(self.party, "odd-answer")


def known_code(code: str) -> str:
    """Return a code from another machine if it is known or encrypted, otherwise the code "odd-answer".

    A site chooses this text, and the coordinator shows it on the screen and stores it in the run's status.
    """
    return code if code in REMEDIES or ENCRYPTED_CODE_PATTERN.fullmatch(code) else "odd-answer"


ENCRYPTED_CODE_PATTERN = re.compile("[0-9a-f]{1,160}")
REMEDIES = {
    "round-passed": "it has already answered a later round; continue from the run folder of that later round",
    "too-few-rows": "it holds fewer rows than its policy requires; add rows, or run the study without this site",
    "handler-not-allowed": "its policy does not allow this question; the site can allow it with `packages`, "
    "`handlers` and `withheld` in [policy] of its site.toml; the page 'Site policy' "
    "explains what that reveals",
    "not-as-declared": "its answer holds more than the declared class of a field allows; the author of the method must "
    "declare the correct class",
    "points-of-few-rows": "a point in its answer equals one of its rows, or stands for fewer rows than its policy "
    "requires; set "
    "init to 'box', or give initial centres",
    "too-few-parties": "its policy requires more sites in a sum; with fewer sites, the sum could reveal the "
    "contribution of one site",
    "aggregation-too-weak": "its policy requires secure or blind aggregation; set aggregation in [privacy]",
    "points-not-allowed": "its policy does not let points leave the site; set init to 'box', or give initial centres",
    "floor-too-low": "its policy requires more rows behind each centre or mean that it sends than the study does; "
    "raise min_rows (for "
    "k-FED and MUFC) or floor (for SummaryClustering)",
    "class-too-small": "one of its clusters has fewer rows than its policy requires; ask for fewer clusters, or use "
    "other initial centres",
    "weights-not-allowed": "its policy does not let the weights of a model leave the site; use a method that "
    "sends no weights",
    "too-many-calls": "it has already answered the maximum number of questions that its policy allows in one run",
    "too-many-facts": "it has already answered the maximum number of variants of this question in one study; keep "
    "the settings of the earlier run, declare bounds, run k-FED with only one number of clusters, continue "
    "SummaryClustering with `fedclust update`, or agree on another study",
    "too-many-numbers": "with this answer, more numbers would have left the site than its policy allows for its "
    "number of rows; ask for fewer clusters or rounds, or use secure aggregation",
    "too-few-in-common": "the rows that all sites have in common are fewer than its policy requires",
    "too-many-ids": "the other sites sent more ids to compare with its own than its policy allows",
    "too-many-alignments": "its policy allows no further comparison of its ids in this study",
    "abstains": "a number in its answer would come from too few rows, or mostly from one row, so its policy excludes "
    "the site from this run; ask for fewer clusters, or use secure aggregation",
    "another-cohort": "it has already answered this question for another set of sites; the difference between the "
    "two sums would reveal one site's contribution",
    "cohort-too-close": "the sites in this sum are almost the same as in an earlier sum; its policy requires a larger "
    "difference; ask all sites again, or use plain mode",
    "not-aligned": "the study uses only the rows that all sites have in common, and in this run the sites have not "
    "agreed yet which rows these are",
    "other-rows": "an earlier question handled rows with missing values in another way; the difference between the two "
    "answers would reveal those rows",
    "not-approved": "its steward has not approved this version of the study; the steward can approve it with "
    "`fedclust site plan`",
    "column-not-allowed": "its policy lists the columns that may be used, and the study uses another one; "
    "`fedclust site plan` at the site names it; leave it out of the study, or ask the site to list it in `columns`",
    "not-in-study": "the study that it serves does not ask this question: a number of clusters, a unit, a price or "
    "another part of it differs; all sites must run the same version of fedclust and serve the same study",
    "not-a-sum": "it was asked to send its own answer, but this answer may leave only as part of a sum",
    "bad-data": "its data cannot be used; trouble.log at the site says why",
    "out-of-bounds": "a value is outside the declared bounds; scale the columns or declare wider bounds",
    "over-budget": "its privacy budget over all studies is too small for this question; use a smaller epsilon",
    "not-private": "it has a privacy budget, so it answers only with noise; set epsilon in [privacy]",
    "too-little-noise": "without the sites that may be dishonest, the sum would have too little noise; all sites must "
    "run the same version of fedclust",
    "not-next-question": "in this study another question comes next: the site runs the study's script itself and "
    "answers only what the script asks; resume the run, and if that does not help, start a new one",
    "not-proven": "it was sent a sum or an answer that the sites did not make, or not in this step; resume the run, "
    "and if that does not help, start a new one",
    "other-outcomes": "it was told earlier that a step of this run ended in another way; start a new run",
    "outcomes-missing": "its record of the run's earlier steps is incomplete; resume the run, which sends them again",
    "script-stopped": "the study's script failed or took too long at the site; see trouble.log there",
    "no-earlier-model": "it has no model of the round before, which its script continues from; run the study again "
    "with all rows",
    "another-model": "its own run of the study's script found another model than the coordinator; do not use the "
    "model, and run the study again with the same version of fedclust at all sites",
    "step-reused": "it has already answered a different question with this step number",
    "not-understood": "it could not read the question; both sides must run the same version of fedclust",
    "not-everyone": "the masked sum includes only some of the sites, but its policy requires all of them",
    "keys-refused": "it refused a key, a signature or an encrypted message; trouble.log at the site says which",
    "answer-changed": "its rows have changed since it first answered this question; restore the earlier rows",
    "failed": "an error occurred at the site; see trouble.log there",
    "odd-answer": "its answer differs in shape or unit from the other sites' answers; all sites must run the same "
    "version of fedclust",
    "impossible-answer": "its answer is invalid: a number is not finite or beyond its bounds",
    "no-answer": "no answer came in time",
    "another-version": "it runs another version of fedclust; install the same version on both sides",
    "another-name": "it has a different name; in the study, use the name from its site.toml",
    "another-study": "it expects a different study, or this study sets the site's source or policy; give it the "
    "current study",
    "too-many-runs": "too many runs have contacted it without getting an answer; trouble.log at the site says "
    "what to delete",
    "not-greeted": "it does not know this run; its state folder was lost or belongs to another site",
    "busy": "another process already serves this site; stop one of the two processes",
}
STUDY_REFUSALS = frozenset(  # a changed study can fix these; a site that keeps its rules cannot
    {
        "too-few-parties",
        "column-not-allowed",
        "aggregation-too-weak",
        "points-not-allowed",
        "not-as-declared",
        "points-of-few-rows",
        "floor-too-low",
        "class-too-small",
        "weights-not-allowed",
        "too-many-calls",
        "too-many-facts",
        "too-many-numbers",
        "abstains",
        "another-cohort",
        "cohort-too-close",
        "other-rows",
        "not-a-sum",
        "not-everyone",
        "out-of-bounds",
        "over-budget",
        "not-private",
    }
)
STUDY_OR_SITE_REFUSALS = frozenset({"handler-not-allowed"})  # the site may allow it, or the study may avoid it
