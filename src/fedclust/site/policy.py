"""A site's rules for its rows. The site owns them; a coordinator can neither read nor relax them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from fedclust.core.effects import Handler
from fedclust.core.envelope import Call
from fedclust.core.errors import RuleRefusal, StudyError
from fedclust.core.handler_checks import OWN_PACKAGE
from fedclust.core.release import FieldClass
from fedclust.site.listed_questions import LISTED_QUESTIONS

Aggregation = Literal["plain", "secure", "blind"]
AGGREGATION_STRENGTH = {"plain": 0, "secure": 1, "blind": 2}
OWN_PACKAGES: frozenset[str] = frozenset({OWN_PACKAGE})
# Listed one by one: a class that a later version adds is in no profile until somebody adds it there.
KNOWN_CLASSES: frozenset[FieldClass] = frozenset(
    {"facts", "marks", "counts", "sums", "points", "weights", "noisy", "keys", "shares"}
)


@dataclass(frozen=True)
class Policy:
    """Rules that a site enforces, each a number or a yes; 0 means no rule. The page "Site policy" explains each rule.

    A question is answered if the policy allows its package and the class of every field of its answer, and if it is not
    withheld. Of fedclust's own questions, only the listed ones are answered. `handlers` allows only the questions that
    it names, of any package. If `withheld` is not None, it is the complete list of withheld questions.
    """

    name: str
    min_rows: int = 0  # at the site
    min_cell: int = 0  # behind a number; if rows weigh less than one, the effective size (sum w)^2 / sum w^2
    max_share: float = 0.0  # the largest share of a number that one row may have
    max_ratio: float = 0.0  # numbers that may leave in a run on their own, for each value that the site holds
    min_parties: int = 0  # in a sum
    aggregation: Aggregation = "plain"  # the weakest aggregation that is allowed for sums
    one_cohort: bool = False  # a masked question is answered for one set of sites only, in all runs
    groups: bool = True  # also masked sums over some of the sites
    cohort_gap: int = 0  # the sets of sites of a run's masked sums are equal, or differ by at least this many sites
    points: bool = True  # may leave on their own
    weights: bool = True  # of a model, may leave on their own
    rounding: int = 0  # displayed counts are multiples of it
    max_calls: int = 0  # in a run
    epsilon: float = 0.0  # what all studies together may spend of each row's privacy; nothing leaves without noise then
    delta: float = 0.0  # the delta of that epsilon; 0 means 1e-6
    max_ids: float = 0.0  # ids that the other sites together may bring to an alignment, for each row here
    max_alignments: int = 0  # in a study
    classes: frozenset[FieldClass] = KNOWN_CLASSES  # classes of fields that may leave
    packages: frozenset[str] | None = OWN_PACKAGES  # packages whose questions are answered; None: all packages
    handlers: frozenset[str] | None = None
    withheld: frozenset[str] | None = None
    columns: frozenset[str] | None = None  # the only columns that a study may use; None: all columns
    signatures: int = 1  # of different stewards, that an approval needs

    def allows(self, handler: Handler[Any, Any]) -> bool:
        """Return whether a question may be asked at all; a question that is not listed may not."""
        withheld = handler.withheld if self.withheld is None else handler.name in self.withheld
        return self._lists(handler) and not withheld and handler.classes <= self.classes

    def _lists(self, handler: Handler[Any, Any]) -> bool:
        if self.handlers is not None:
            return handler.name in self.handlers
        if self.packages is None:
            return True
        return handler.package in self.packages and (handler.is_foreign or handler.name in LISTED_QUESTIONS)

    def unlisted_columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the columns that a study may not use, of those that it uses."""
        return () if self.columns is None else tuple(name for name in names if name not in self.columns)

    def refuse_unlisted_columns(self, names: Iterable[str], party: str) -> None:
        """Refuse a study that uses other columns than the listed ones, before any question."""
        if unlisted := self.unlisted_columns(names):
            named = ", ".join(f"'{name}'" for name in unlisted)
            raise RuleRefusal(
                "column-not-allowed",
                f"the study uses {named}, which `columns` in the policy of site '{party}' does not list; leave "
                f"{'it' if len(unlisted) == 1 else 'them'} out of the study, or ask the site to list "
                f"{'it' if len(unlisted) == 1 else 'them'}",
            )

    @cached_property
    def has_no_rules(self) -> bool:
        """Whether the policy has no rules for answers except the list of questions."""
        plain = Policy(self.name)
        listed = ("name", "classes", "packages", "handlers", "withheld", "columns", "signatures")
        return all(vars(self)[f.name] == vars(plain)[f.name] for f in fields(self) if f.name not in listed)

    @cached_property
    def passing_weight(self) -> float:
        """The weight from which a cell always passes, since no row weighs more than one."""
        return max(float(self.min_cell), 1 / self.max_share if self.max_share else 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules for JSON and for a digest."""
        rules = {f.name: vars(self)[f.name] for f in fields(self)}
        return {n: sorted(value) if isinstance(value, frozenset) else value for n, value in rules.items()}

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


def _make_profile(name: str, floor: int, **rules: Any) -> Policy:
    """Return what all profiles except "none" have in common."""
    return Policy(
        name,
        min_rows=floor,
        min_cell=floor,
        max_share=0.5,
        max_ratio=0.33,
        min_parties=3,
        one_cohort=True,
        groups=False,
        cohort_gap=3,
        max_ids=10.0,
        max_alignments=3,
        **({"points": False, "weights": False} | rules),
    )


# An initial centre is a mean of five rows, so a floor above five keeps points at the site.
PROFILES = {
    "none": Policy("none", packages=None, withheld=frozenset()),  # all rows are in one process
    "datashield": _make_profile("datashield", 3, points=True),
    "standard": _make_profile("standard", 5, points=True),
    "tre": _make_profile("tre", 7, rounding=5),
    "nhs": _make_profile("nhs", 10),
    "cms": _make_profile("cms", 11),
}


def find_policy(name: str | Policy) -> Policy:
    """Return a policy by its name."""
    if isinstance(name, Policy):
        return name
    if name not in PROFILES:
        raise StudyError(f"there is no policy '{name}'; choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


def aggregation_of_call(call: Call) -> str:
    """Return how a call hides its sum."""
    return "blind" if call.is_encrypted else "plain" if call.masks is None else "secure"
