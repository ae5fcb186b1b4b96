"""The rules of the gate for answers, one function each: they return a code to withhold with, or None to let it pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedclust.core import wire
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call
from fedclust.core.release import Release, count_numbers
from fedclust.core.row_weights import tally_unit_weights
from fedclust.core.site_interface import Site
from fedclust.core.types import Floats
from fedclust.site import class_checks, point_checks
from fedclust.site.guards import QuestionContext
from fedclust.site.ledger import ANSWER_SEPARATOR
from fedclust.site.point_checks import FLOOR_TOLERANCE


@dataclass(frozen=True)
class AnswerContext:
    """What a guard can see before an answer leaves as the site's own."""

    question: QuestionContext
    release: Release
    site: Site


def check_cells(a: AnswerContext) -> str | None:
    """Abstain if too few rows are behind a number, or if one row dominates it."""
    policy = a.question.policy
    if not policy.passing_weight:
        return None
    mass = _cell_weights(a.release)
    stated = a.question.handler.is_foreign and a.question.handler.row_weights is not None
    if mass.size and not stated and not ((mass > 0) & (mass < policy.passing_weight)).any():
        return None  # the sum of weights is at most the effective size, because no weight exceeds one
    tally = _tally_cells(a, mass)
    some = tally[0] > 0
    total, squares, largest = tally[:, some]
    if (total**2 < FLOOR_TOLERANCE * policy.min_cell * squares).any():
        return "abstains"
    return "abstains" if policy.max_share and (FLOOR_TOLERANCE * largest > policy.max_share * total).any() else None


def check_sums_of_cells(a: AnswerContext) -> str | None:
    """Refuse sums of another package that belong to no cell or to an empty one, and weights that no rows can have."""
    handler = a.question.handler
    if not handler.is_foreign or not handler.classes & {"sums", "weights"}:
        return None
    mass = _cell_weights(a.release)
    tally = _tally_cells(a, mass)
    if handler.row_weights is not None and not class_checks.is_possible_tally(tally, mass, a.site.rows):
        return "not-as-declared"
    return class_checks.check_sums_of_cells(a.release, handler.schema, tally[0], len(a.site.columns))


def check_number_count(a: AnswerContext) -> str | None:
    """Refuse once the numbers sent in all rounds of a run would suffice to solve for the rows."""
    q = a.question
    if not q.policy.max_ratio or not q.tally.reveals_more(variant_of_answer(q.call, a.release)):
        return None
    added = count_numbers(a.release, all_counts=q.handler.is_foreign)
    if not added:  # such as keys, for which the rows were not even counted
        return None
    count = q.tally.numbers + added
    return "too-many-numbers" if count > q.policy.max_ratio * q.rows * max(1, len(a.site.columns)) else None


def variant_of_answer(call: Call, release: Release) -> str:
    """Return a digest that is equal for answers that reveal nothing new.

    A question of fedclust gets the same answer each time. Another package may answer differently each time.
    """
    if not HANDLERS[call.handler].is_foreign:
        return call.question_digest
    return f"{call.question_digest}{ANSWER_SEPARATOR}{hashlib.sha256(wire.encode(release)).hexdigest()[:32]}"


def check_distinct_answers(a: AnswerContext) -> str | None:
    """Refuse more different answers of another package than its question declares."""
    q = a.question
    if not (q.handler.is_foreign and q.handler.max_distinct):
        return None
    variant = variant_of_answer(q.call, a.release)
    if not q.tally.reveals_more(variant):
        return None
    few = q.tally.distinct_questions[q.handler.name] < q.handler.max_distinct
    bits = class_checks.bits_of_sent_facts(q.tally, q.parties) + q.tally.bits_of_timing(variant)
    bits += class_checks.bits_of_facts(q.handler, q.parties)
    return None if few and bits <= class_checks.MAX_FACT_BITS else "too-many-facts"


def check_field_classes(a: AnswerContext) -> str | None:
    """Refuse an answer that holds more than the classes of its fields allow."""
    q = a.question
    known = {*(q.call.cohort if q.enrolled is None else q.enrolled), a.site.party}
    fits = class_checks.fits_field_classes(a.release, q.handler.schema, a.site, known, foreign=q.handler.is_foreign)
    if q.handler.is_foreign:
        fits = fits and class_checks.has_declared_forms(a.release, q.handler.schema, q.call.message, a.site)
    return None if fits else "not-as-declared"


def check_points(a: AnswerContext) -> str | None:
    """Refuse points that equal a row shared by few rows, or that stand for too few rows if the site can count them."""
    return None if _judge_points(a).passes(a.release) else "points-of-few-rows"


def check_sums_are_no_rows(a: AnswerContext) -> str | None:
    """Refuse sums and weights that equal a row: another package may be wrong about how many rows are behind them."""
    if not a.question.handler.is_foreign:
        return None
    return "not-as-declared" if _judge_points(a).has_numbers_equal_to_row(a.release) else None


def _judge_points(a: AnswerContext) -> point_checks.PointCheck:
    q = a.question
    return point_checks.PointCheck(q.handler, q.call.message, a.site, q.policy.min_cell, q.policy.max_share)


def _cell_weights(release: Release) -> Floats:
    fields = [release.field_value(name) for name, d in release.schema().items() if d.cells and d.combine == "sum"]
    return np.concatenate([field.to_floats().ravel() for field in fields]) if fields else np.zeros(0)


def _tally_cells(a: AnswerContext, mass: Floats) -> Floats:
    """Return the sum, the sum of squares and the maximum of the weights in each cell."""
    handler, message = a.question.handler, a.question.call.message
    if handler.row_weights is None:
        return tally_unit_weights(mass)
    if not handler.is_foreign:
        return handler.row_weights(a.site, message)
    return class_checks.plain_floats(handler.row_weights(a.site, wire.copy_as(handler.message, message)))


ANSWER_GUARDS: tuple[Callable[[AnswerContext], str | None], ...] = (
    check_field_classes,
    check_points,
    check_sums_are_no_rows,
    check_sums_of_cells,
    check_cells,
    check_number_count,
    check_distinct_answers,
)
MASKED_ANSWER_GUARDS: tuple[Callable[[AnswerContext], str | None], ...] = (check_field_classes, check_sums_of_cells)
