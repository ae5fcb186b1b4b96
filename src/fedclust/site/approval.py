"""A steward's signed yes to one study at one site: to its text, under this policy, with these sites, until a day.

An approval binds the study by its digest, which is part of the run's name and so of every call; the policy; the noise
that rows are under; the keys of the sites that take part; the version; an expiry date; and for each question how often
it may be answered in all runs of the study. A coordinator that says another study's digest gets no further than what
was approved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call
from fedclust.core.errors import StudyError
from fedclust.privacy.keys import Identity, is_signed_by
from fedclust.site.ledger import Tally
from fedclust.site.policy import AGGREGATION_STRENGTH, Policy, aggregation_of_call

APPROVAL_FORMAT, APPROVAL_VERSION = "fedclust-approval", 3
SIGNATURE_CONTEXT = b"fedclust approval 3\n"


@dataclass(frozen=True)
class ApprovalTerms:
    """What a steward agrees to."""

    name: str
    site: str
    study: str  # a digest of its text
    policy: str  # a digest of its rules
    sites: str  # a digest of names and keys
    fedclust: str
    expires: str
    most: Mapping[str, int]  # answers to each question
    aggregation: str = "plain"  # the least that sums travel under
    noise: str = ""  # a digest of the noise that rows are under, where they are

    @property
    def signed_bytes(self) -> bytes:
        return SIGNATURE_CONTEXT + json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class Approval:
    """Terms that were signed, and what is true at this site, to hold them against; `today` tells the date."""

    terms: ApprovalTerms
    site: str
    policy: str
    sites: str
    fedclust: str
    noise: str = ""
    today: Callable[[], date] = lambda: datetime.now(UTC).date()

    def covers(self, call: Call, policy: Policy, tally: Tally) -> bool:
        """Whether a question is one of those the steward agreed to."""
        terms = self.terms
        return (
            study_digest_from_run(call.run) == terms.study
            and policy.digest == terms.policy
            and (self.site, self.sites, self.fedclust) == (terms.site, terms.sites, terms.fedclust)
            and self.noise == terms.noise
            and self.today() <= date.fromisoformat(terms.expires)
            and self._count_answers(call, tally) < terms.most.get(call.handler, 0)
            and self._is_strong_enough(call)
        )

    @staticmethod
    def _count_answers(call: Call, tally: Tally) -> int:
        """Answers that count; one that is masked tells nothing more when it is asked for again."""
        if call.want != "total" or call.masks is None:
            return tally.by_handler[call.handler]
        return tally.distinct_questions[call.handler] - (call.question_digest in tally.questions)

    def _is_strong_enough(self, call: Call) -> bool:
        """Sums travel under what was agreed to; where that is a veil, everything but keys does."""
        if self.terms.aggregation == "blind" and not call.veiled:
            return {d.kind for d in HANDLERS[call.handler].release.schema().values()} <= {"keys"}
        return (
            call.want != "total"
            or AGGREGATION_STRENGTH[aggregation_of_call(call)] >= AGGREGATION_STRENGTH[self.terms.aggregation]
        )


def digest_study(study: str) -> str:
    """The digest of a study's text: one letter changes it."""
    return hashlib.sha256(study.encode()).hexdigest()[:32]


def study_digest_from_run(run: str) -> str:
    """The digest that the name of a run ends in, or nothing."""
    return run.partition("-")[2]


def roster_digest(roster: Mapping[str, bytes]) -> str:
    """A digest of who takes part under which key."""
    named = {name: key.hex() for name, key in roster.items()}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def sign_terms(terms: ApprovalTerms, steward: Identity) -> str:
    """An approval file's text."""
    document = {
        "format": APPROVAL_FORMAT,
        "version": APPROVAL_VERSION,
        **asdict(terms),
        "steward": steward.public.hex(),
        "signature": steward.sign(terms.signed_bytes).hex(),
    }
    return json.dumps(document, indent=1) + "\n"


def read_terms(path: Path, steward: bytes) -> ApprovalTerms:
    """The terms in an approval file, if the steward of this site signed them."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (document.pop("format"), document.pop("version")) != (APPROVAL_FORMAT, APPROVAL_VERSION):
            raise StudyError(f"{path} is an approval of another version of fedclust; approve the study anew")
        signature = bytes.fromhex(document.pop("signature"))
        document.pop("steward")
        terms = ApprovalTerms(**document)
        date.fromisoformat(terms.expires)
    except FileNotFoundError:
        raise StudyError(f"there is no approval at {path}; make one with fedclust site plan --approve") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StudyError(f"{path} is not an approval; make one with fedclust site plan --approve") from None
    if not is_signed_by(steward, signature, terms.signed_bytes):
        raise StudyError(f"{path} was altered, or signed by someone else than this site's steward; approve anew")
    return terms
