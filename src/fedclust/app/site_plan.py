"""Shows at one site what a study would send from there, before anything leaves.

The study is rehearsed on the site's rows alone, and again on other rows derived from them. A question that is the same
both times does not depend on any answer, so exactly its answer will leave. The other questions are not known yet, so
the answers of the rehearsal serve as examples. Every answer passes the site's own gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.algorithms.cmeans import (
    column_labels,
    column_split,
    described_cells,
    floored_decision,
    floored_opening,
)
from fedclust.app.audit.recovered_rows import OpenedSums, rows_shown_as_points
from fedclust.app.choose_k import DEFAULT_KS
from fedclust.app.opened_sums import max_opened_sums
from fedclust.app.plan_rehearsal import (
    RehearsalGate,
    federation_of_other_rows,
    labels_of_rehearsal,
    opening_floor,
    rehearse_own_parts,
    rehearse_study,
)
from fedclust.app.search_allowances import search_allowances
from fedclust.app.start_allowances import opening_allowances, start_allowances
from fedclust.app.study.study_parts import Study, StudySite
from fedclust.app.table_risks import DEFAULT_FLOOR, TableRisks, find_table_risks
from fedclust.core import wire
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call
from fedclust.core.errors import StudyError
from fedclust.core.noise_price import PricedQuestion
from fedclust.core.release import Release
from fedclust.core.types import PartyId
from fedclust.federation.aggregation import Aggregation
from fedclust.models.base import FederatedEstimator
from fedclust.privacy.attacks.transcript import Observation, observe
from fedclust.privacy.verified.transcript import VERIFICATION_QUESTIONS
from fedclust.questions import alignment
from fedclust.questions.composition import composition
from fedclust.questions.schema import encoded_names
from fedclust.site.approval import digest_study
from fedclust.site.noise_budget import NoiseBudget
from fedclust.site.policy import Policy
from fedclust.site.privacy_spending import PrivacySpending
from fedclust.site.site_data import SiteData

DEFAULT_DELTA = 1e-6  # if the study names none
SUMS_OF_EVERY_CLUSTER = {"row_split.moments", "rows_with_gaps.moments", "densities.moments"}
APPROVAL_SLACK = (
    2,
    10,
)  # an approval allows twice the messages of the rehearsal plus ten, because all rows may need more rounds
KEY_QUESTIONS = {
    "secure": ("roster.offer", "roster.accept"),
    "blind": ("roster.offer", "roster.accept", "blind_aggregation.group"),
}
COUNTS_OF_SITES = {composition.name, described_cells.cell_counts.name}
ALIGNMENT_QUESTIONS = {  # questions that align rows; None: one for each other site
    alignment.send_own_list.name: 1,
    alignment.pass_list.name: None,
    alignment.return_tags.name: 1,
    alignment.accept_count.name: 1,
    alignment.keep_common_rows.name: 1,
}
DROPOUT_QUESTIONS = (
    "roster.offer",
    "dropout_recovery.share",
    "dropout_recovery.consent",
    "dropout_recovery.unmask",
)  # for each sum


@dataclass(frozen=True)
class PlannedQuestion:
    """One kind of question: how often the rehearsal asked it, its largest answer, and the gate's decision.

    `is_known` means that the question does not depend on any answer. `passed` counts the answers that the gate allowed
    before it refused message number `message_number` of the run with `code`. `site_is_out` means that the site had left
    the run by then. `is_masked` means that masks hide the answer in a sum.
    """

    name: str
    times: int
    size: int = 0
    is_known: bool = False
    release: Release | None = None
    passed: int = 0
    code: str | None = None
    message_number: int = 0
    site_is_out: bool = False
    is_masked: bool = False
    min_allowed: int = 0  # a minimum, however few the rehearsal needed

    @property
    def max_answers(self) -> int:
        """Return how often an approval allows an answer in one run."""
        return max(APPROVAL_SLACK[0] * self.times + APPROVAL_SLACK[1], self.min_allowed)


@dataclass(frozen=True)
class SitePlan:
    """What would leave a site, question by question, in the order of the questions."""

    study: Study
    party: PartyId
    policy: Policy
    rows: int
    columns: tuple[str, ...]
    questions: tuple[PlannedQuestion, ...]
    price_rho: float = 0.0  # of all answers under differential privacy, in rho
    shown_rows: int | None = None  # of this site, that attacks recover from the rehearsal's sums; None: no such sums
    max_sums: int = 0  # of groups of rows, that a run opens: no more rows follow from them by adding and subtracting
    budget: PrivacySpending | None = None  # what the site may spend on all studies, and has spent
    risks: TableRisks = TableRisks(DEFAULT_FLOOR)  # rows of this site that stand out

    @property
    def opens_cluster_sums(self) -> bool:
        """Whether sums of clusters or of other groups of rows are opened, so that attacks on them apply."""
        names = {question.name for question in self.questions}
        return self.shown_rows is not None or bool(names & SUMS_OF_EVERY_CLUSTER)

    @property
    def opening_floor(self) -> int:
        """The fewest changed rows from which on a sum is opened; 0 if every sum is opened."""
        return opening_floor(self.study)

    @property
    def delta(self) -> float:
        """The delta of the study's differential privacy."""
        return float(self.study.noise.get("delta", DEFAULT_DELTA))

    @property
    def refused_columns(self) -> tuple[str, ...]:
        """The columns of the study that this site's policy does not list."""
        own = next((site.columns for site in self.study.sites if site.name == self.party), None)
        names = own or self.study.columns or self.columns
        return self.policy.unlisted_columns((*names, *([self.study.id] if self.study.id else [])))

    @property
    def is_allowed(self) -> bool:
        """Whether the site would answer everything."""
        return not self.refused_questions and not self.refused_columns and self.is_affordable

    @cached_property
    def weighs_rows(self) -> bool:
        """Whether the sums of clusters count each row with its memberships."""
        return self._estimator.is_soft

    @cached_property
    def can_open_floored(self) -> bool:
        """Whether the method can open sums above a floor."""
        return "opening" in self._estimator.get_params()

    @cached_property
    def _estimator(self) -> FederatedEstimator:
        return self.study.make_estimator(encoded_names(self.study.schema) or None)

    @property
    def is_affordable(self) -> bool:
        """Whether the site's budget covers the study."""
        most = None if self.budget is None else self.budget.rho_limit
        return most is None or self.budget is None or self.budget.spent_rho + self.price_rho <= most * (1 + 2.0**-20)

    @cached_property
    def refused_questions(self) -> tuple[PlannedQuestion, ...]:
        """Return the questions that the site's rules refuse, in order."""
        return tuple(sorted((q for q in self.questions if q.code is not None), key=lambda q: q.message_number))

    @property
    def digest(self) -> str:
        return digest_study(self.study.text)

    @property
    def max_answers(self) -> dict[str, int]:
        """Return the maximum counts that an approval of this plan fixes."""
        return {question.name: question.max_answers for question in self.questions}


def make_plan(study: Study, party: PartyId, source: Any, policy: Policy, state: Path | None = None) -> SitePlan:
    """Rehearse a study at one site; check every answer against its policy and the budget spent according to `state`."""
    opens = study.cluster.options.get("opens", "distances")
    how = Aggregation(rehearses_blind=study.aggregation.has_fixed_rounds)
    alone = replace(study, sites=(_site_alone(study, party, source),), aggregation=how)
    if opens == "labels":  # one site cannot compute on shares: it rehearses the rest and counts the sealed messages
        shown = {**study.cluster.options, "opens": "distances"}
        alone = replace(alone, cluster=replace(study.cluster, options=shown))
    fed = alone.open_federation()
    own_data = fed.site_data[party]
    own = set() if study.aggregation.mode == "plain" else COUNTS_OF_SITES  # under masks they stay at the site
    own = own | ({column_split.measure_distances.name, column_split.apply_weights.name} if opens == "labels" else set())
    own |= {floored_opening.hide_counts_from_coordinator.name} if _tests_counts(study) else set()
    rehearsal, model = rehearse_study(alone, fed)
    noted = [(call, release) for call, release in rehearsal if call.handler not in own]
    others, _ = rehearse_study(alone, federation_of_other_rows(fed, party), strict=False)
    known = {call.question_digest for call, _ in others}
    return SitePlan(
        study,
        party,
        policy,
        own_data.survey_for(study.missing).rows,
        fed.columns,
        (
            *_key_questions(study, noted),
            *_add_uncertain_questions(
                study, list(_plan_questions(noted, known, RehearsalGate(study, own_data, policy)))
            ),
        ),
        price := _sum_prices(noted),
        _count_shown_rows(own_data, rehearse_own_parts(study, alone) or rehearsal, study.missing)
        if study.split == "rows"
        else None,
        max_opened_sums(study, _max_rounds(study), _max_fits(study)) if study.split == "rows" else 0,
        NoiseBudget(policy, state if state and state.exists() else None).spending if price else None,
        find_table_risks(
            own_data,
            study.missing,
            max(policy.min_cell, opening_floor(study)) or DEFAULT_FLOOR,
            policy.max_share,
            labels_of_rehearsal(model, own_data, study.split),
        ),
    )


def _count_shown_rows(site_data: SiteData, rehearsal: list[tuple[Call, Release]], missing: str) -> int | None:
    """Return how many of this site's rows the product's attacks recover from the sums and points of the rehearsal.

    Rows with missing values are not attacked.
    """
    opened, points = OpenedSums(), list[Observation]()
    for call, release in rehearsal:
        handler = HANDLERS[call.handler]
        if call.want == "total":
            opened.add(call.step, handler, call.cohort, call.message, release)
        elif "points" in handler.classes:
            points.append(observe(call.step, handler, call.cohort, call.message, release))
    if (opened.is_empty and not points) or missing == "partial":
        return None
    rows = np.concatenate([np.asarray(block, np.float64).T for block in site_data.source.blocks()])
    rows = rows[~np.isnan(rows).any(axis=1)]
    shown = np.zeros(len(rows), np.bool_) if opened.is_empty else opened.recovered_rows(rows)
    return int((shown | rows_shown_as_points(points, rows)).sum())


def _sum_prices(noted: list[tuple[Call, Release]]) -> float:
    """Return the privacy cost of a rehearsal's questions for each row, in rho."""
    return math.fsum(call.message.price.rho for call, _ in noted if isinstance(call.message, PricedQuestion))


def _site_alone(study: Study, party: PartyId, source: Any) -> StudySite:
    own = next((site for site in study.sites if site.name == party), None)
    if own is None:
        names = ", ".join(site.name for site in study.sites)
        raise StudyError(f"the study has no site '{party}'; name one of {names} with --name")
    return replace(own, source=source, policy="none")


def _plan_questions(
    noted: list[tuple[Call, Release]], known: set[str], rules: RehearsalGate
) -> Iterator[PlannedQuestion]:
    """Yield one line per question; a question that is only sometimes known in advance has two lines."""
    found: dict[tuple[str, bool], PlannedQuestion] = {}
    for number, (call, release) in enumerate(noted, 1):
        out = rules.has_abstained
        sure, code, size = call.question_digest in known, rules.judge_answer(call, release), wire.encoded_size(release)
        place = (call.handler, sure)
        before = found.get(place) or PlannedQuestion(call.handler, 0, is_known=sure, is_masked=rules.is_masked(call))
        found[place] = replace(
            before,
            times=before.times + 1,
            size=max(before.size, size),
            release=rules.gate.hide_and_round_counts(release)
            if before.release is None or size > before.size
            else before.release,
            passed=before.passed + (code is None),
            code=before.code or code,
            message_number=number if code and not before.code else before.message_number,
            site_is_out=out if code and not before.code else before.site_is_out,
        )
    for (name, sure), question in found.items():
        other = found.get((name, not sure))
        # Both lines of a question show its total count.
        yield question if other is None else replace(question, times=question.times + other.times)


def _add_uncertain_questions(study: Study, found: list[PlannedQuestion]) -> Iterator[PlannedQuestion]:
    """Add the questions of a start and of a search for K: on all sites' rows, they may be asked more often."""
    allowed = start_allowances(study) | opening_allowances(study, _max_rounds(study), _max_fits(study))
    if study.cluster.choice is not None and study.split == "rows":
        allowed |= search_allowances(study.cluster.choice, study.cluster.max_clusters)
    for question in found:
        yield replace(question, min_allowed=allowed.get(question.name, 0))
    for name, most in allowed.items():
        if any(question.name == name for question in found):
            continue
        yield PlannedQuestion(name, 0, is_masked=study.aggregation.mode != "plain", min_allowed=most)


def _key_questions(study: Study, noted: list[tuple[Call, Release]]) -> Iterator[PlannedQuestion]:
    """Yield the questions that set up keys and align rows, which the rehearsal does not ask."""
    sums = sum(call.want == "total" for call, _ in noted)
    often = study.aggregation.mode == "secure" and study.cluster.options.get("quorum", "all") != "all"
    labels = study.cluster.options.get("opens") == "labels"
    floored = study.cluster.options.get("opening") == "floored"
    sealed = ((study.align is not None or floored) and len(study.sites) > 1) or labels
    mode = "secure" if sealed and study.aggregation.mode == "plain" else study.aggregation.mode
    for name in DROPOUT_QUESTIONS if often else KEY_QUESTIONS.get(mode, ()):
        yield PlannedQuestion(name, sums if often else 1)
    for name in VERIFICATION_QUESTIONS if study.is_verified else ():
        yield PlannedQuestion(name, 1)
    for name, times in ALIGNMENT_QUESTIONS.items() if study.align is not None and len(study.sites) > 1 else ():
        yield PlannedQuestion(name, times or len(study.sites) - 1)
    for name, times in (
        floored_decision.count_questions(_max_rounds(study), _max_fits(study), len(study.sites)).items()
        if floored
        else ()
    ):
        yield PlannedQuestion(name, times)
    for name, times in (
        column_labels.count_questions(_max_rounds(study), study.cluster.max_clusters).items() if labels else ()
    ):
        yield PlannedQuestion(name, times)


def _tests_counts(study: Study) -> bool:
    """Whether the sites find out which sums may be opened, so that the coordinator gets no hidden counts."""
    return study.cluster.options.get("opening") == "floored" and len(study.sites) >= floored_opening.MIN_TESTED_SITES


def _max_fits(study: Study) -> int:
    """Return how many fits a study may take."""
    choice = study.cluster.choice
    if choice is None:
        return 1
    return max(1, choice.fits_per_k * (len(choice.ks) if choice.ks else DEFAULT_KS[-1]))


def _max_rounds(study: Study) -> int:
    return int(study.make_estimator(encoded_names(study.schema) or None).get_params().get("max_iter") or 0)
