"""An approval of one study at one site, signed by its stewards, under the current policy and until an expiry date.

An approval covers the study by its digest, which is part of the run's name and so of every call. It also covers the
policy, the noise on the rows, the keys of the sites that take part, the version, an expiry date, and for each question
how often it may be answered in all runs of the study. A coordinator that uses another study's digest gets no more than
what was approved for that study.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call
from fedclust.core.errors import RuleRefusal
from fedclust.core.script_version import SCRIPT_VERSION
from fedclust.privacy.keys import Identity, is_signed_by
from fedclust.site.ledger import Tally
from fedclust.site.policy import AGGREGATION_STRENGTH, Policy, aggregation_of_call

APPROVAL_FORMAT, APPROVAL_VERSION = "fedclust-approval", 4
SIGNATURE_CONTEXT = b"fedclust approval 4\n"
Signatures = Mapping[bytes, bytes]  # of an approval, by the public key of the steward


@dataclass(frozen=True)
class ApprovalTerms:
    """What a steward agrees to."""

    name: str
    site: str
    study: str  # a digest of the study's text
    policy: str  # a digest of the policy's rules
    sites: str  # a digest of names and keys
    fedclust: str
    expires: str
    most: Mapping[str, int]  # the number of answers to each question
    aggregation: str = "plain"  # the weakest aggregation that is allowed for sums
    noise: str = ""  # a digest of the noise on the rows, if there is any
    script: int = SCRIPT_VERSION  # of the questions that the study's script asks

    @property
    def signed_bytes(self) -> bytes:
        return SIGNATURE_CONTEXT + json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class Approval:
    """Signed terms, and the facts at this site to compare them with; `today` returns the date."""

    terms: ApprovalTerms
    site: str
    policy: str
    sites: str
    fedclust: str
    noise: str = ""
    today: Callable[[], date] = lambda: datetime.now(UTC).date()

    def covers(self, call: Call, policy: Policy, tally: Tally) -> bool:
        """Return whether the steward approved a question."""
        terms = self.terms
        return (
            study_digest_from_run(call.run) == terms.study
            and policy.digest == terms.policy
            and (self.site, self.sites, self.fedclust) == (terms.site, terms.sites, terms.fedclust)
            and self.noise == terms.noise
            and terms.script == SCRIPT_VERSION
            and self.today() <= date.fromisoformat(terms.expires)
            and self._count_answers(call, tally) < terms.most.get(call.handler, 0)
            and self._is_strong_enough(call)
        )

    @staticmethod
    def _count_answers(call: Call, tally: Tally) -> int:
        """Count the answers that matter; repeating a masked answer reveals nothing more."""
        if call.want != "total" or call.masks is None:
            return tally.by_handler[call.handler]
        return tally.distinct_questions[call.handler] - (call.question_digest in tally.questions)

    def _is_strong_enough(self, call: Call) -> bool:
        """Return whether sums are hidden as agreed; if blind mode was agreed, everything but keys must be encrypted."""
        if self.terms.aggregation == "blind" and not call.is_encrypted:
            return {d.kind for d in HANDLERS[call.handler].schema.values()} <= {"keys"}
        return (
            call.want != "total"
            or AGGREGATION_STRENGTH[aggregation_of_call(call)] >= AGGREGATION_STRENGTH[self.terms.aggregation]
        )


def digest_study(study: str) -> str:
    """Return the digest of a study's text; changing one character changes it."""
    return hashlib.sha256(study.encode()).hexdigest()[:32]


def study_digest_from_run(run: str) -> str:
    """Return the digest at the end of a run's name, or an empty text."""
    return run.partition("-")[2]


def roster_digest(roster: Mapping[str, bytes]) -> str:
    """Return a digest of the parties and their keys."""
    named = {name: key.hex() for name, key in roster.items()}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def sign_terms(terms: ApprovalTerms, steward: Identity, signed: Signatures | None = None) -> str:
    """Return the text of an approval file with a steward's signature added to those of `signed`."""
    signatures = {**(signed or {}), steward.public: steward.sign(terms.signed_bytes)}
    document = {
        "format": APPROVAL_FORMAT,
        "version": APPROVAL_VERSION,
        **asdict(terms),
        "signatures": {public.hex(): signature.hex() for public, signature in signatures.items()},
    }
    return json.dumps(document, indent=1) + "\n"


def read_terms(path: Path, stewards: Collection[bytes], needed: int = 1) -> ApprovalTerms:
    """Return the terms in an approval file if enough of this site's stewards signed them, and nobody else."""
    terms, signatures = read_signed_terms(path, stewards)
    if len(signatures) < needed:
        raise RuleRefusal(
            "not-approved",
            f"{path} has {len(signatures)} of the {needed} signatures that this site requires; another steward must "
            "sign it with: fedclust site plan --approve",
        )
    return terms


def read_signed_terms(path: Path, stewards: Collection[bytes]) -> tuple[ApprovalTerms, Signatures]:
    """Return the terms in an approval file and the signatures of this site's stewards; refuse any other signature."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (document.pop("format"), document.pop("version")) != (APPROVAL_FORMAT, APPROVAL_VERSION):
            raise RuleRefusal(
                "not-approved", f"{path} is an approval for another version of fedclust; approve the study again"
            )
        # Written in another case, the key of a steward would count twice; as bytes, it counts once.
        signatures = {bytes.fromhex(key): bytes.fromhex(own) for key, own in document.pop("signatures").items()}
        terms = ApprovalTerms(**document)
        date.fromisoformat(terms.expires)
    except FileNotFoundError:
        raise RuleRefusal(
            "not-approved", f"there is no approval at {path}; create one with fedclust site plan --approve"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, RuleRefusal):
            raise
        raise RuleRefusal(
            "not-approved", f"{path} is not an approval; create one with fedclust site plan --approve"
        ) from None
    text = terms.signed_bytes
    if not signatures or not all(key in stewards and is_signed_by(key, own, text) for key, own in signatures.items()):
        raise RuleRefusal(
            "not-approved", f"{path} was altered, or not signed by this site's steward; approve the study again"
        )
    return terms, signatures
