"""The rules of the gate for questions, one function each: they return a code to refuse with, or None to let it pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedclust.core.effects import HANDLERS, Handler
from fedclust.core.envelope import Call
from fedclust.core.noise_price import Noisy, PricedQuestion, count_honest_sites
from fedclust.core.question_types import (
    REFUSE_GAPS,
    ClassesQuestion,
    CommonRowsQuestion,
    ConsentQuestion,
    IdListQuestion,
    PointsQuestion,
)
from fedclust.core.run_series import parse_series
from fedclust.core.study_terms import StudyTerms
from fedclust.privacy import psi
from fedclust.privacy.roster import is_lasting, threshold
from fedclust.site import class_checks, point_checks
from fedclust.site.contract_guard import check_contract
from fedclust.site.ledger import Tally
from fedclust.site.policy import AGGREGATION_STRENGTH, Policy, aggregation_of_call
from fedclust.site.run_agreements import RunAgreements
from fedclust.site.site_data import missing_rule_of

MAX_ANSWER_POINTS = 2**16  # in an answer


@dataclass(frozen=True)
class QuestionContext:
    """What a guard can see before anything is computed."""

    call: Call
    handler: Handler[Any, Any]
    policy: Policy
    rows: int
    tally: Tally
    enrolled: frozenset[str] | None = None  # the parties that this site was enrolled with
    split: str | None = None  # how the study splits the table between the sites, if this site knows
    method: str | None = None  # the study's method, if this site knows
    floored: bool = False  # whether the study opens the sum of a cluster only above a floor
    terms: StudyTerms | None = None  # what the study that the site serves promises; None: it serves none
    agreements: RunAgreements | None = None  # what this run has fixed

    @property
    def parties(self) -> int:
        """How many parties the answer may name."""
        return len(self.call.cohort if self.enrolled is None else self.enrolled)

    @property
    def is_private(self) -> bool:
        """Whether every answer about rows must carry noise: by the site's own policy, or by the study."""
        return bool(self.policy.epsilon) or (self.terms is not None and self.terms.is_private)

    @property
    def has_noise(self) -> bool:
        return issubclass(self.handler.release, Noisy)

    @property
    def is_masked_sum(self) -> bool:
        return self.call.want == "total" and self.call.masks is not None


Guard = Callable[[QuestionContext], str | None]


def check_handler_allowed(q: QuestionContext) -> str | None:
    """Refuse a question that the policy does not list by package, by class of field, or by name."""
    return None if q.policy.allows(q.handler) else "handler-not-allowed"


def check_split(q: QuestionContext) -> str | None:
    """Refuse questions for a column split if the split is by rows: a message for one site alone singles it out."""
    return "handler-not-allowed" if q.split == "rows" and q.handler.split == "columns" else None


def check_method(q: QuestionContext) -> str | None:
    """Refuse points that only one method needs in a study that uses another method."""
    foreign = q.method is not None and q.handler.methods and q.method not in q.handler.methods
    return "handler-not-allowed" if foreign else None


def check_opening(q: QuestionContext) -> str | None:
    """Refuse the sums of every cluster in a study that opens a cluster's sum only if enough rows have changed.

    A site cannot tell whether the sums of another package are those of clusters.
    """
    opens = q.handler.opens_all_clusters or (q.handler.is_foreign and "sums" in q.handler.classes)
    return "handler-not-allowed" if q.floored and opens else None


def check_labels_only(q: QuestionContext) -> str | None:
    """Refuse distances and single-row weights if sites hold columns and the study opens labels only.

    A site cannot tell whether the sums of another package are distances.
    """
    opens = q.handler.opens_distances or (q.handler.is_foreign and "sums" in q.handler.classes)
    return "handler-not-allowed" if q.split == "labels" and opens else None


def check_row_floor(q: QuestionContext) -> str | None:
    """Refuse everything at a site with fewer rows than its floor."""
    if q.has_noise or q.is_private or q.handler.reads == "places":
        return None  # noise hides the number of rows, and a refusal would reveal it
    return "too-few-rows" if q.rows < q.policy.min_rows else None


def check_combination(q: QuestionContext) -> str | None:
    """Refuse a sum asked as one party's own answer, an own answer asked as a sum, and messages that are not sealed."""
    combine = {"total": "sum", "each": "each", "relay": "messages"}[q.call.want]
    if combine == "messages" and q.call.masks is None:
        return "not-a-sum"
    return None if all(d.combine == combine for d in q.handler.schema.values()) else "not-a-sum"


def check_abstention(q: QuestionContext) -> str | None:
    """Refuse after an abstention for the rest of the run: an absence in one round only would reveal what it hides."""
    return q.tally.abstained


def check_party_count(q: QuestionContext) -> str | None:
    """Refuse a sum over too few parties: in a sum of two, each knows the other's share."""
    few = q.call.want == "total" and len(set(q.call.cohort)) < q.policy.min_parties
    return "too-few-parties" if few else None


def check_aggregation(q: QuestionContext) -> str | None:
    """Refuse sums under weaker masks than the site requires; at the strictest level, everything must be encrypted.

    If sums are masked, or were masked earlier in this study, the site also withholds its own counts around centres that
    somebody chose: counts on the sides of many planes would locate a row.
    """
    if q.policy.aggregation == "blind" and not q.call.is_encrypted:
        silent = q.handler.classes <= {"keys"} and q.call.want != "total"
        return None if silent else "aggregation-too-weak"
    if q.call.want != "total":
        masked = AGGREGATION_STRENGTH[q.policy.aggregation] > AGGREGATION_STRENGTH["plain"] or bool(q.tally.cohorts)
        return "aggregation-too-weak" if q.handler.plain_only and masked else None
    return (
        "aggregation-too-weak"
        if AGGREGATION_STRENGTH[aggregation_of_call(q.call)] < AGGREGATION_STRENGTH[q.policy.aggregation]
        else None
    )


def check_consent(q: QuestionContext) -> str | None:
    """Refuse points and weights as the site's own answer unless the site has agreed."""
    kinds = q.handler.classes
    if "points" in kinds and not q.policy.points:
        return "points-not-allowed"
    return "weights-not-allowed" if "weights" in kinds and not q.policy.weights else None


def check_noise_required(q: QuestionContext) -> str | None:
    """Refuse answers without noise if a budget limits what may be revealed about a row.

    This includes a question without an answer unless it reads no rows, because its success may depend on the rows.
    """
    free = q.has_noise or q.handler.classes == {"keys"} or q.handler.reads == "nothing"
    return "not-private" if q.is_private and not free else None


def check_noise_amount(q: QuestionContext) -> str | None:
    """Refuse an invalid price, and noise that falls short without the dishonest sites, or alone where all answers are
    seen.
    """
    if not q.has_noise:
        return None
    if not isinstance(q.call.message, PricedQuestion) or not q.call.message.price.is_valid:
        return "too-little-noise"
    price = q.call.message.price
    if not q.is_masked_sum:
        return None if price.honest == 1 else "too-little-noise"
    cohort = len(q.call.cohort)
    fewest = cohort if is_lasting(str(q.call.masks)) else threshold(cohort)
    return None if price.honest <= count_honest_sites(len(q.enrolled or q.call.cohort), fewest) else "too-little-noise"


def check_call_count(q: QuestionContext) -> str | None:
    """Refuse more questions in a run than the policy allows."""
    return "too-many-calls" if q.policy.max_calls and q.tally.calls >= q.policy.max_calls else None


def check_distinct_count(q: QuestionContext) -> str | None:
    """Refuse more variants of a fact than a study needs, since each reveals more; the same question reveals nothing
    new.
    """
    most = 0 if q.handler.is_foreign else q.handler.max_distinct
    again = most and q.call.question_digest not in q.tally.questions
    return "too-many-facts" if again and q.tally.distinct_questions[q.handler.name] >= most else None


def check_fact_bits(q: QuestionContext) -> str | None:
    """Refuse facts of other packages that could hold more bits, together with those of the study so far, than allowed.

    A site cannot check that a yes is not a bit of a row.
    """
    if not (q.handler.is_foreign and "facts" in q.handler.classes):
        return None
    bits = class_checks.bits_of_sent_facts(q.tally, q.parties) + class_checks.bits_of_facts(q.handler, q.parties)
    return "too-many-facts" if bits > class_checks.MAX_FACT_BITS else None


def check_other_runs(q: QuestionContext) -> str | None:
    """Refuse other questions about rows that another run of the study has summarised: they would group them
    differently.

    Within a run, and in its later rounds, a site remembers what it sent.
    """
    elsewhere = q.tally.series.get(q.handler.name, set()) - {parse_series(q.call.run)[0]}
    other = q.handler.one_run and elsewhere and q.call.question_digest not in q.tally.questions
    return "too-many-facts" if other else None


def check_point_count(q: QuestionContext) -> str | None:
    """Refuse a short question that asks for more memory than there is."""
    asked = q.call.message.max_points() if isinstance(q.call.message, PointsQuestion) else 0
    return "too-many-numbers" if asked > MAX_ANSWER_POINTS else None


def check_one_cohort(q: QuestionContext) -> str | None:
    """Refuse the same sum with and without a site, in any run: the difference is that site's answer."""
    if not (q.is_masked_sum and q.policy.one_cohort):
        return None
    before = q.tally.cohort_for(q.call.question_digest)
    return "another-cohort" if before is not None and before != frozenset(q.call.cohort) else None


def check_whole_cohort(q: QuestionContext) -> str | None:
    """Refuse a masked sum over some of the sites: its difference to the full sum is the sum of the others."""
    some = q.is_masked_sum and is_lasting(str(q.call.masks)) and frozenset(q.call.cohort) != q.enrolled
    return "not-everyone" if some and not q.policy.groups else None


def check_cohort_gap(q: QuestionContext) -> str | None:
    """Refuse sums of one study over sets of sites that differ by few sites: their difference nearly reveals those
    sites.

    The sets must also be nested. Then sums and their differences only give sums over the layers between them.
    Overlapping sets could be solved for single sites, however much any two of them differ.
    """
    asked = parties_in_opened_sum(q.call)
    if asked is None or not q.policy.cohort_gap:
        return None
    close = any(
        0 < len(asked ^ other) < q.policy.cohort_gap or not (asked <= other or other <= asked)
        for other in q.tally.cohorts
    )
    return "cohort-too-close" if close else None


def check_gap_rule(q: QuestionContext) -> str | None:
    """Refuse the same sum with and without the rows that have missing values: the difference reveals those rows."""
    asked = gap_rule_of_sum(q.call)
    return "other-rows" if asked and q.tally.gaps and asked != q.tally.gaps else None


def gap_rule_of_sum(call: Call) -> str:
    """Return how rows with missing values are handled for a sum, if the question allows them."""
    asked = missing_rule_of(HANDLERS[call.handler], call.message) if call.want == "total" else REFUSE_GAPS
    return "" if asked == REFUSE_GAPS else asked


def check_common_rows(q: QuestionContext) -> str | None:
    """Refuse if the sites have fewer rows in common than the site's floor."""
    ask = q.call.message
    few = isinstance(ask, CommonRowsQuestion) and ask.rows_in_common() < q.policy.min_rows
    return "too-few-in-common" if few else None


def check_point_floor(q: QuestionContext) -> str | None:
    """Refuse points that stand for fewer rows, by declaration or by the question, than the site requires."""
    declared = [
        point_checks.declared_floor(d, q.call.message) for d in point_checks.point_fields(q.handler.schema).values()
    ]
    return "floor-too-low" if min(declared, default=q.policy.min_cell) < q.policy.min_cell else None


def check_class_sizes(q: QuestionContext) -> str | None:
    """Refuse small classes: a centre at the mean of few rows lies among them, and later labels describe these few."""
    ask = q.call.message
    small = isinstance(ask, ClassesQuestion) and ask.smallest_class() < q.policy.min_cell
    return "class-too-small" if small else None


def check_id_count(q: QuestionContext) -> str | None:
    """Refuse long lists of ids: a list of every possible id would find out who is at the site.

    A site passes on one list for each other site. The site before it in the ring sends all of them, so they share one
    limit.
    """
    ask = q.call.message
    if not q.policy.max_ids or not isinstance(ask, IdListQuestion):
        return None
    share = q.policy.max_ids * q.rows / max(1, len(q.enrolled or ()) - 1)
    return "too-many-ids" if ask.longest_list() > max(2 * psi.MIN_LIST_LENGTH, share) else None


def check_alignment_count(q: QuestionContext) -> str | None:
    """Refuse repeated alignments: with other ids each time, they would find out who is at the site."""
    if not q.policy.max_alignments or not q.handler.starts_alignment:
        return None
    return "too-many-alignments" if q.tally.by_handler[q.handler.name] >= q.policy.max_alignments else None


def parties_in_opened_sum(call: Call) -> frozenset[str] | None:
    """Return the sites whose masked sum an answer to this call helps to open, or None.

    If sites may drop out, this is known only when the others agree on who answered.
    """
    if isinstance(call.message, ConsentQuestion):
        return call.message.parties_in_sum()
    opens = call.want == "total" and call.masks is not None and is_lasting(call.masks)
    return frozenset(call.cohort) if opens else None


ALWAYS_GUARDS: tuple[Guard, ...] = (
    check_handler_allowed,
    check_opening,
    check_combination,
    check_noise_amount,
)  # the rules that apply even at a site without its own rules
QUESTION_GUARDS: tuple[Guard, ...] = (
    check_abstention,
    check_handler_allowed,
    check_noise_required,
    check_split,
    check_method,
    check_opening,
    check_labels_only,
    check_row_floor,
    check_combination,
    check_party_count,
    check_aggregation,
    check_consent,
    check_noise_amount,
    check_call_count,
    check_distinct_count,
    check_fact_bits,
    check_other_runs,
    check_point_count,
    check_whole_cohort,
    check_one_cohort,
    check_cohort_gap,
    check_gap_rule,
    check_common_rows,
    check_point_floor,
    check_class_sizes,
    check_id_count,
    check_alignment_count,
    check_contract,
)
