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
    """A call or an answer as bytes carry it; `body` is a message of the handler's own type."""

    run: str
    step: int
    handler: str
    want: str
    cohort: str  # names, one a line: thousands of them are read at once
    masks: str | None
    body: bytes


@dataclass(frozen=True)
class Call:
    """One question of a run. The same object goes to every party that gets the same message."""

    run: str
    step: int
    handler: str
    message: Any
    want: Want
    cohort: tuple[PartyId, ...]
    masks: str | None = None  # the name of the keys that hide the answer, or that open the letters in the message
    veiled: bool = False  # it came under a veil that the coordinator cannot lift

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
        """A digest of what is asked, whenever and of whomever."""
        return hashlib.sha256(self.handler.encode() + b"\0" + wire.encode(self.message)).hexdigest()[:32]

    @classmethod
    def decode(cls, data: bytes) -> Call:
        e = wire.decode(Envelope, data)
        if e.want not in ("total", "each", "relay") or e.handler not in HANDLERS:
            raise WireError("a call for something this version does not know")
        cohort = tuple(e.cohort.split("\n"))
        if len(set(cohort)) != len(cohort):
            raise WireError("a cohort that names a party twice")
        message = wire.decode(HANDLERS[e.handler].message, e.body)
        return cls(e.run, e.step, e.handler, message, cast("Want", e.want), cohort, e.masks)


@dataclass(frozen=True)
class SealedAnswer:
    """An answer that passed the gate; built nowhere else."""

    party: PartyId
    run: str
    step: int
    handler: str
    release: Any
    masks: str | None = None

    @cached_property
    def wire_bytes(self) -> bytes:
        body = wire.encode(self.release)
        return wire.encode(Envelope(self.run, self.step, self.handler, "sealed", self.party, self.masks, body))

    @classmethod
    def decode(cls, data: bytes) -> SealedAnswer:
        e = wire.decode(Envelope, data)
        if e.want != "sealed" or e.handler not in HANDLERS:
            raise WireError("an answer to something this version does not know")
        return cls(e.cohort, e.run, e.step, e.handler, wire.decode(HANDLERS[e.handler].release, e.body), e.masks)

    @cached_property
    def size(self) -> int:
        """The bytes of the answer itself, as the ledger counts them."""
        return wire.encoded_size(self.release)


@dataclass(frozen=True)
class Refusal:
    """A site's no. It carries a code, never a text: an exception's message may quote data."""

    party: PartyId
    code: str


@dataclass(frozen=True)
class Answer:
    """A site's reply between machines: the digest of the call it is to, and either a sealed answer or a code."""

    party: str
    call: bytes
    sealed: bytes | None
    code: str

    @classmethod
    def from_reply(cls, call_digest: bytes, reply: SealedAnswer | Refusal) -> Answer:
        """The reply to a call of this digest."""
        if isinstance(reply, SealedAnswer):
            return cls(reply.party, call_digest, reply.wire_bytes, "")
        return cls(reply.party, call_digest, None, reply.code)

    def to_reply(self) -> SealedAnswer | Refusal:
        """What was replied; an answer that cannot be read is a refusal under its party's name."""
        if self.sealed is None:
            return Refusal(self.party, known_code(self.code))
        try:
            return SealedAnswer.decode(self.sealed)
        except NotFinite:
            return Refusal(self.party, "impossible-answer")
        except WireError:
            return Refusal(self.party, "odd-answer")


def known_code(code: str) -> str:
    """A code as another machine gave it: one that we have words for, or one under a veil; else that it was odd.

    A site chooses these letters, and they are shown on the coordinator's screen and kept in its status.
    """
    return code if code in REMEDIES or VEILED_CODE_PATTERN.fullmatch(code) else "odd-answer"


VEILED_CODE_PATTERN = re.compile("[0-9a-f]{1,160}")
REMEDIES = {
    "round-passed": "it has taken part in a later round already; go on from the run of that round",
    "too-few-rows": "it holds fewer rows than its policy lets take part",
    "handler-not-allowed": "its policy does not allow this question; the site can, by `packages`, `handlers` and "
    "`withheld` in [policy] of its site.toml; the page 'Site policy' says what that gives away",
    "not-as-declared": "the answer holds more than the class of a field allows; the author of the method must declare "
    "what it is",
    "points-of-few-rows": "a point is one of its rows, or stands for fewer rows than its policy asks for; use start "
    "'box', or centres",
    "too-few-parties": "a sum over so few sites would give the others' parts away; its policy asks for more",
    "aggregation-too-weak": "its policy asks for secure or blind aggregation; set aggregation in [privacy]",
    "points-not-allowed": "its policy lets no points leave; use start 'box', or centres",
    "floor-too-low": "its policy asks for more rows behind each point than the study does; raise min_rows (of k-FED "
    "and MUFC) or floor (of SummaryClustering)",
    "class-too-small": "its policy asks for more rows in each cluster, or for none; ask for fewer clusters, or begin "
    "elsewhere",
    "weights-not-allowed": "its policy lets no weights of a model leave",
    "too-many-calls": "its policy lets no more questions be answered in one run",
    "too-many-facts": "it has answered this question in as many forms as one study gets; leave the settings as they "
    "are or declare bounds, ask k-FED for one number of clusters, continue SummaryClustering by fedclust update, or "
    "agree on another study",
    "too-many-numbers": "with this answer, too many numbers would have left for its rows; ask for fewer clusters or "
    "rounds, or use secure aggregation",
    "too-few-in-common": "the sites have fewer rows in common than its policy lets take part",
    "too-many-ids": "the other sites brought more ids than its policy lets be compared with its own",
    "too-many-alignments": "its policy lets its ids be compared no more often in this study",
    "abstains": "too few rows are behind a number, or one row is most of it, so its policy keeps it out of this run; "
    "ask for fewer clusters, or use secure aggregation",
    "another-cohort": "it answered this question for another set of sites before; the difference would show a site",
    "cohort-too-close": "the sites asked differ by fewer than its policy allows from those of an earlier sum; ask all "
    "again, or use plain mode",
    "not-aligned": "the study is of rows that all sites have, and these were not agreed on yet in this run",
    "other-rows": "it was asked before to read rows with gaps in another way; the difference would show those rows",
    "not-approved": "its steward has not approved this study as it is; approve it anew with fedclust site plan",
    "not-a-sum": "it was asked for its own answer where only a sum may leave",
    "bad-data": "its data cannot be used; its own log says why",
    "out-of-bounds": "a value lies beyond the declared bounds; scale the columns or declare wider bounds",
    "over-budget": "its privacy budget, over all studies, has no room for this; ask with a smaller epsilon",
    "not-private": "it has a privacy budget, so it answers under noise only; set epsilon in [privacy]",
    "too-little-noise": "the noise of the sites that may be relied on would not do; all must run the same version",
    "step-reused": "it had answered another question under this step",
    "not-understood": "the question was not understood; both sides must run the same version of fedclust",
    "not-everyone": "a masked sum over some of the sites only; its policy asks for all of them",
    "keys-refused": "keys or signatures were not as they should be; its own log says which",
    "answer-changed": "its rows are not those it first answered this question with; put them back as they were",
    "failed": "an error at the site; its own log says which",
    "odd-answer": "its answer had another shape or unit than the others'; all must run the same version of fedclust",
    "impossible-answer": "its answer cannot be true: a number is not finite or beyond its bounds",
    "no-answer": "no answer came in time",
    "another-version": "it runs another version of fedclust; install the same one on both sides",
    "another-name": "it goes by another name; the study must call it as its own site.toml does",
    "another-study": "it was told of another study, or given its source or rules by this one; send it the study anew",
    "too-many-runs": "it was greeted for too many runs that it answered nothing in; its own log says what to clear",
    "not-greeted": "it does not know this run; its state folder was lost, or belongs to another site",
    "busy": "another process serves this site; stop one of them",
}
STUDY_REFUSALS = frozenset(  # what another study can mend, and no site that keeps to its rules
    {
        "too-few-parties",
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
STUDY_OR_SITE_REFUSALS = frozenset({"handler-not-allowed"})  # the site may allow it, or the study do without
