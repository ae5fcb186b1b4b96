"""The rules of the gate, one function each: a code to refuse with, or None to let pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.effects import Handler
from fedclust.core.envelope import Call
from fedclust.core.handler_checks import OWN_PACKAGE
from fedclust.core.noise_price import Noisy, PricedQuestion, honest
from fedclust.core.question_types import STRICT, ClassesQuestion, CommonRowsQuestion, PointsQuestion
from fedclust.core.release import Release, numbers_in
from fedclust.core.row_weights import each_one
from fedclust.core.run_series import series
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats
from fedclust.privacy import psi
from fedclust.privacy.dropout_recovery import consent
from fedclust.privacy.roster import lasting, threshold
from fedclust.questions import alignment
from fedclust.site import class_checks, point_checks
from fedclust.site.ledger import Tally
from fedclust.site.policy import STRENGTH, Policy, mode
from fedclust.site.site_data import missing_in

NEAR = 1 - 2.0**-40  # of a floor: an effective size is a float
MOST_POINTS = 2**16  # in an answer


@dataclass(frozen=True)
class Question:
    """What a guard may look at before anything is computed."""

    call: Call
    handler: Handler[Any, Any]
    policy: Policy
    rows: int
    tally: Tally
    everyone: frozenset[str] | None = None  # whom this site was enrolled with
    split: str | None = None  # how the study's table lies at the sites, where this site knows
    method: str | None = None  # of the study, likewise

    @property
    def under_noise(self) -> bool:
        return issubclass(self.handler.release, Noisy)

    @property
    def masked_sum(self) -> bool:
        return self.call.want == "total" and self.call.masks is not None


@dataclass(frozen=True)
class Answer:
    """What a guard may look at before the answer leaves as the site's own."""

    question: Question
    release: Release
    site: Site


Guard = Callable[[Question], str | None]


def allowed(q: Question) -> str | None:
    """The policy lists what may be asked, by package, by class of field, or by name."""
    return None if q.policy.allows(q.handler) else "handler-not-allowed"


def of_the_split(q: Question) -> str | None:
    """Sites of a column split are each sent a slice of their own: where all hold all columns, that singles one out."""
    return "handler-not-allowed" if q.split == "rows" and q.handler.split == "columns" else None


def of_the_method(q: Question) -> str | None:
    """Points that only one method needs are not asked for in a study by another."""
    foreign = q.method is not None and q.handler.methods and q.method not in q.handler.methods
    return "handler-not-allowed" if foreign else None


def labels_only(q: Question) -> str | None:
    """Where sites hold columns and a study opens labels only, nobody asks for distances or weighs single rows."""
    return "handler-not-allowed" if q.split == "labels" and q.handler.opens_distances else None


def enough_rows(q: Question) -> str | None:
    """A site with fewer rows than its floor takes part in nothing."""
    if q.under_noise or q.policy.epsilon or q.handler.reads == "places":
        return None  # noise hides how many there are, which a refusal would tell
    return "too-few-rows" if q.rows < q.policy.min_rows else None


def sums_only(q: Question) -> str | None:
    """A sum never leaves as one party's own, what is shown cannot be summed away, and letters go sealed."""
    combine = {"total": "sum", "each": "each", "relay": "letters"}[q.call.want]
    if combine == "letters" and q.call.masks is None:
        return "not-a-sum"
    return None if all(d.combine == combine for d in q.handler.release.schema().values()) else "not-a-sum"


def still_in(q: Question) -> str | None:
    """A site that abstained stays out of the run: a gap in one round only would show what it hides."""
    return q.tally.abstained


def enough_parties(q: Question) -> str | None:
    """Of a sum of two, each knows the other's part."""
    few = q.call.want == "total" and len(set(q.call.cohort)) < q.policy.min_parties
    return "too-few-parties" if few else None


def strong_enough(q: Question) -> str | None:
    """Sums travel under at least the masks the site asks for; at its strictest, everything is veiled.

    Where sums are masked, or were in this study, a site's own counts around centres that somebody chose stay here, too:
    by the sides of many planes a row is found.
    """
    if q.policy.aggregation == "blind" and not q.call.veiled:
        silent = q.handler.classes <= {"keys"} and q.call.want != "total"
        return None if silent else "aggregation-too-weak"
    if q.call.want != "total":
        masked = STRENGTH[q.policy.aggregation] > STRENGTH["plain"] or bool(q.tally.cohorts)
        return "aggregation-too-weak" if q.handler.plain_only and masked else None
    return "aggregation-too-weak" if STRENGTH[mode(q.call)] < STRENGTH[q.policy.aggregation] else None


def consented(q: Question) -> str | None:
    """Points and weights leave on their own only where the site agreed."""
    kinds = q.handler.classes
    if "points" in kinds and not q.policy.points:
        return "points-not-allowed"
    return "weights-not-allowed" if "weights" in kinds and not q.policy.weights else None


def paid_for(q: Question) -> str | None:
    """Where a budget limits what is told of a row, nothing that is told of rows goes past it.

    Nor does a question without an answer, for whether it succeeds may tell of rows, unless it looks at none.
    """
    free = q.under_noise or q.handler.classes == {"keys"} or q.handler.reads == "nothing"
    return "not-private" if q.policy.epsilon and not free else None


def enough_noise(q: Question) -> str | None:
    """A price is a price, and the noise of the honest sites alone is what it asks for; one's own where all is seen."""
    if not q.under_noise:
        return None
    if not isinstance(q.call.message, PricedQuestion) or not q.call.message.price.sound:
        return "too-little-noise"
    price = q.call.message.price
    if not q.masked_sum:
        return None if price.honest == 1 else "too-little-noise"
    cohort = len(q.call.cohort)
    fewest = cohort if lasting(str(q.call.masks)) else threshold(cohort)
    return None if price.honest <= honest(len(q.everyone or q.call.cohort), fewest) else "too-little-noise"


def seldom_enough(q: Question) -> str | None:
    """A run has so many questions and no more."""
    return "too-many-calls" if q.policy.max_calls and q.tally.calls >= q.policy.max_calls else None


def scarcely_enough(q: Question) -> str | None:
    """A fact of few bits, asked again from elsewhere, has more of them; the same question tells nothing new."""
    most = q.handler.max_distinct
    again = most and q.call.question not in q.tally.questions
    return "too-many-facts" if again and q.tally.different[q.handler.name] >= most else None


def told_before(q: Question) -> str | None:
    """Rows that were summed up in one run are in another by the same question only: else they are parted otherwise.

    Within a run, and in its later rounds, a site remembers what it told.
    """
    elsewhere = q.tally.series.get(q.handler.name, set()) - {series(q.call.run)[0]}
    other = q.handler.one_run and elsewhere and q.call.question not in q.tally.questions
    return "too-many-facts" if other else None


def few_enough_points(q: Question) -> str | None:
    """A short question must not ask for more memory than there is."""
    asked = q.call.message.max_points() if isinstance(q.call.message, PointsQuestion) else 0
    return "too-many-numbers" if asked > MOST_POINTS else None


def one_cohort(q: Question) -> str | None:
    """The same sum with and without a site is that site's answer, in whatever run."""
    if not (q.masked_sum and q.policy.one_cohort):
        return None
    before = q.tally.cohort_of(q.call.question)
    return "another-cohort" if before is not None and before != frozenset(q.call.cohort) else None


def whole(q: Question) -> str | None:
    """A sum over some of the sites hides among those only, and its difference to the sum over all is the others'."""
    some = q.masked_sum and lasting(str(q.call.masks)) and frozenset(q.call.cohort) != q.everyone
    return "not-everyone" if some and not q.policy.groups else None


def cohorts_apart(q: Question) -> str | None:
    """Sums of one study over sets of sites that differ by one or two nearly are those sites' sums.

    Each set must hold the next, too: then all that sums and their differences give is sums over the layers between
    them, while sets that overlap crosswise can be solved for single sites, however far apart any two are.
    """
    asked = summed_over(q.call)
    if asked is None or not q.policy.cohort_gap:
        return None
    close = any(
        0 < len(asked ^ other) < q.policy.cohort_gap or not (asked <= other or other <= asked)
        for other in q.tally.cohorts
    )
    return "cohort-too-close" if close else None


def same_rows(q: Question) -> str | None:
    """The same sum with and without the rows that have gaps shows those rows."""
    asked = gaps_in(q.call)
    return "other-rows" if asked and q.tally.gaps and asked != q.tally.gaps else None


def gaps_in(call: Call) -> str:
    """How rows with gaps are read for a sum, where a question allows them at all."""
    asked = missing_in(call.message) if call.want == "total" else STRICT
    return "" if asked == STRICT else asked


def enough_in_common(q: Question) -> str | None:
    """Rows that all sites have are fewer than a site has; they, too, must be as many as its floor."""
    ask = q.call.message
    few = isinstance(ask, CommonRowsQuestion) and ask.rows_in_common() < q.policy.min_rows
    return "too-few-in-common" if few else None


def floor_of_points(q: Question) -> str | None:
    """Points stand for as many rows as their declaration or the question says, but not for fewer than the site does."""
    declared = [
        point_checks.declared_floor(d, q.call.message) for d in point_checks.points_of(q.handler.release).values()
    ]
    return "floor-too-low" if min(declared, default=q.policy.min_cell) < q.policy.min_cell else None


def enough_in_class(q: Question) -> str | None:
    """A centre moved to the mean of few rows lies among them, and the labels that follow speak of these few."""
    ask = q.call.message
    small = isinstance(ask, ClassesQuestion) and ask.smallest_class() < q.policy.min_cell
    return "class-too-small" if small else None


def few_enough_ids(q: Question) -> str | None:
    """Lists with an entry for everyone there might be would find out who is here; a site passes one on for each other.

    Whoever is before it in the ring hands it all of them, so that they share in what it lets be compared.
    """
    if not q.policy.max_ids or q.handler.name != alignment.pass_on.name:
        return None
    longest = max((len(text) // psi.SIZE for text in q.call.message.letters.values()), default=0)
    share = q.policy.max_ids * q.rows / max(1, len(q.everyone or ()) - 1)
    return "too-many-ids" if longest > max(2 * psi.FEWEST, share) else None


def aligned_seldom(q: Question) -> str | None:
    """Alignments repeated with other ids each time would find out who is here."""
    if not q.policy.max_alignments or q.handler.name != alignment.set_out.name:
        return None
    return "too-many-alignments" if q.tally.by_handler[q.handler.name] >= q.policy.max_alignments else None


def summed_over(call: Call) -> frozenset[str] | None:
    """The sites whose masked sum an answer to this call helps to open, or None.

    Where sites may leave on the way, that is decided only when the others agree on who answered.
    """
    if call.handler == consent.name:
        return frozenset(call.message.parties)
    opens = call.want == "total" and call.masks is not None and lasting(call.masks)
    return frozenset(call.cohort) if opens else None


def cells(a: Answer) -> str | None:
    """Enough rows are behind each number, and none is most of it; else the site abstains."""
    policy = a.question.policy
    if not policy.heavy:
        return None
    mass = _cells(a.release)
    if mass.size and not ((mass > 0) & (mass < policy.heavy)).any():
        return None  # the sum of weights is at most the effective size, for no weight exceeds one
    found = _behind(a, mass)
    some = found[0] > 0
    total, squares, largest = found[:, some]
    if (total**2 < NEAR * policy.min_cell * squares).any():
        return "abstains"
    return "abstains" if policy.max_share and (NEAR * largest > policy.max_share * total).any() else None


def numbers(a: Answer) -> str | None:
    """In all rounds of a run, fewer numbers leave than would do to solve for the rows."""
    q = a.question
    if not q.policy.max_ratio or q.call.question in q.tally.questions:
        return None
    count = q.tally.numbers + numbers_in(a.release)
    return "too-many-numbers" if count > q.policy.max_ratio * q.rows * max(1, len(a.site.columns)) else None


def as_declared(a: Answer) -> str | None:
    """An answer holds no more than the classes of its fields say."""
    q = a.question
    known = {*q.call.cohort, *(q.everyone or ()), a.site.party}
    return None if class_checks.keeps_to_classes(a.release, a.site, known) else "not-as-declared"


def points_of_rows(a: Answer) -> str | None:
    """No point is a row that few rows share, and where the site can count what is behind a point, it does."""
    q = a.question
    found = point_checks.PointCheck(q.handler, q.call.message, a.site, q.policy.min_cell, q.policy.max_share)
    return None if found.passes(a.release) else "points-of-few-rows"


def no_sum_is_a_row(a: Answer) -> str | None:
    """Another package may be wrong about how many rows are behind its sums: a sum that is a row shows it."""
    q = a.question
    if q.handler.package == OWN_PACKAGE:
        return None
    found = point_checks.PointCheck(q.handler, q.call.message, a.site, q.policy.min_cell, q.policy.max_share)
    return "not-as-declared" if found.sums_are_rows(a.release) else None


def _cells(release: Release) -> Floats:
    fields = [release.field_value(name) for name, d in release.schema().items() if d.cells and d.combine == "sum"]
    return np.concatenate([field.floats().ravel() for field in fields]) if fields else np.zeros(0)


def _behind(a: Answer, mass: Floats) -> Floats:
    """Sum, sum of squares and largest of the weights in each cell."""
    if a.question.handler.row_weights is not None:
        return a.question.handler.row_weights(a.site, a.question.call.message)
    return each_one(mass)


ALWAYS: tuple[Guard, ...] = (allowed, sums_only, enough_noise)  # what a site without rules of its own still keeps to
ENTRY: tuple[Guard, ...] = (
    still_in,
    allowed,
    paid_for,
    of_the_split,
    of_the_method,
    labels_only,
    enough_rows,
    sums_only,
    enough_parties,
    strong_enough,
    consented,
    enough_noise,
    seldom_enough,
    scarcely_enough,
    told_before,
    few_enough_points,
    whole,
    one_cohort,
    cohorts_apart,
    same_rows,
    enough_in_common,
    floor_of_points,
    enough_in_class,
    few_enough_ids,
    aligned_seldom,
)
LEAVING: tuple[Callable[[Answer], str | None], ...] = (
    as_declared,
    points_of_rows,
    no_sum_is_a_row,
    cells,
    numbers,
)
LEAVING_MASKED: tuple[Callable[[Answer], str | None], ...] = (as_declared,)
