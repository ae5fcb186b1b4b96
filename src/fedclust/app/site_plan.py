"""What a study would make leave one site, found out at that site before anything leaves.

The study is rehearsed on the site's rows alone, and again on other rows made of them: a question that is the same both
times does not depend on what anybody answers, so its answer is the very one that will leave. What other questions will
ask is not known yet; their answers of the rehearsal stand in for them. Every answer meets the site's own gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedclust.algorithms.cmeans import column_labels, column_split
from fedclust.algorithms.gaussian_mixture import densities
from fedclust.app.analysis import describe
from fedclust.app.choose_k import asks_for, select_k
from fedclust.app.study.study_parts import Site, Study
from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call, Sealed
from fedclust.core.errors import FedclustError, StudyError
from fedclust.core.noise_price import PricedQuestion
from fedclust.core.release import Release
from fedclust.core.types import Array, PartyId
from fedclust.federation.aggregation import Aggregation
from fedclust.federation.federation import Federation
from fedclust.privacy.keys import Identity
from fedclust.questions import alignment, cluster_indices
from fedclust.questions.choice_of_k import centers_for_each_k, prediction_strength
from fedclust.questions.composition import composition
from fedclust.site.approval import digest_of
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.noise_budget import Till
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.privacy_spending import Budget
from fedclust.site.site_data import Holding, Turn, missing_in
from fedclust.site.sources import Derived
from fedclust.site.vault import Vaults

SLACK = 2, 10  # an approval allows twice what the rehearsal took, and ten: other sites' rows may take more rounds
KEYS = {
    "secure": ("roster.offer", "roster.accept"),
    "blind": ("roster.offer", "roster.accept", "blind_aggregation.group"),
}
ALIGNING = {  # questions by which rows are aligned; None: one for each other site
    alignment.set_out.name: 1,
    alignment.pass_on.name: None,
    alignment.come_back.name: 1,
    alignment.enough.name: 1,
    alignment.settle.name: 1,
}
SEARCHING = (
    centers_for_each_k.move.name,
    centers_for_each_k.widths.name,
    centers_for_each_k.gains.name,
    densities.moments.name,
    densities.scatter.name,
    prediction_strength.tables.name,
    cluster_indices.around.name,
    cluster_indices.gather.name,
    cluster_indices.scatter.name,
)
LEAVING_ON_THE_WAY = (
    "roster.offer",
    "dropout_recovery.share",
    "dropout_recovery.consent",
    "dropout_recovery.unmask",
)  # for each sum


@dataclass(frozen=True)
class Question:
    """One kind of question: how often the rehearsal had it, its largest answer, and what the gate said.

    `known` says that what is asked does not depend on any answer; `passed` is how many answers the gate let out before
    it refused with `code`, the `place`th message of the run; `out` says that the site was out of the run by then.
    `masked` says that masks hide the answer in a sum.
    """

    name: str
    times: int
    size: int = 0
    known: bool = False
    release: Release | None = None
    passed: int = 0
    code: str | None = None
    place: int = 0
    out: bool = False
    masked: bool = False
    allowed: int = 0  # at least, whatever the rehearsal took

    @property
    def most(self) -> int:
        """How often an approval lets it be answered in one run."""
        return max(SLACK[0] * self.times + SLACK[1], self.allowed)


@dataclass(frozen=True)
class Plan:
    """What would leave a site, question by question, in the order of asking."""

    study: Study
    party: PartyId
    policy: Policy
    rows: int
    columns: tuple[str, ...]
    questions: tuple[Question, ...]
    price: float = 0.0  # of all answers under differential privacy, in rho
    budget: Budget | None = None  # what the site may spend on all studies, and has spent

    @property
    def affordable(self) -> bool:
        """Whether the site's budget has room for the study."""
        most = None if self.budget is None else self.budget.rho
        return most is None or self.budget is None or self.budget.spent + self.price <= most * (1 + 2.0**-20)

    @cached_property
    def refused(self) -> tuple[Question, ...]:
        """What the site's rules stop, the first first."""
        return tuple(sorted((q for q in self.questions if q.code is not None), key=lambda q: q.place))

    @property
    def digest(self) -> str:
        return digest_of(self.study.text)

    @property
    def most(self) -> dict[str, int]:
        """The counts that an approval of this plan binds."""
        return {question.name: question.most for question in self.questions}


def plan(study: Study, party: PartyId, source: Any, policy: Policy, state: Path | None = None) -> Plan:
    """Rehearse a study at one site and hold every answer against the site's policy and what `state` says it spent."""
    opens = study.cluster.options.get("opens", "distances")
    how = Aggregation(steady=study.aggregation.fixed_rounds)
    alone = replace(study, sites=(_site(study, party, source),), aggregation=how)
    if opens == "labels":  # one site cannot compute on shares: it rehearses the rest, and counts the letters
        shown = {**study.cluster.options, "opens": "distances"}
        alone = replace(alone, cluster=replace(study.cluster, options=shown))
    fed = alone.federation()
    holding = fed.holdings[party]
    own = set() if study.aggregation.mode == "plain" else {composition.name}  # under masks it stays at the site
    own |= {column_split.measure.name, column_split.weigh.name} if opens == "labels" else set()
    rehearsal = _rehearsed(alone, fed)
    noted = [(call, release) for call, release in rehearsal if call.handler not in own]
    known = {call.question for call, _ in _rehearsed(alone, _shaken(fed, party), strict=False)}
    return Plan(
        study,
        party,
        policy,
        holding.under(study.missing).rows,
        fed.columns,
        (
            *_keys(study, noted),
            *_possible(study, list(_questions(noted, known, _Rules(study, holding, policy)))),
        ),
        price := _price(noted),
        Till(policy, state if state and state.exists() else None).budget if price else None,
    )


def _price(noted: list[tuple[Call, Release]]) -> float:
    """What the questions of a rehearsal cost each row, in rho."""
    return math.fsum(call.message.price.rho for call, _ in noted if isinstance(call.message, PricedQuestion))


class _Noting:
    """An engine that remembers what was asked and what was answered."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.noted: list[tuple[Call, Release]] = []

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return self.engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.noted += [(calls[p], reply.release) for p, reply in replies.items() if isinstance(reply, Sealed)]
        return replies


class _Shaken(Derived):
    """Other rows of the same kind: every second one, an eighth as large, so that bounds still hold."""

    def blocks(self) -> Iterator[Array]:
        return (block[:, ::2] / 8 for block in self.source.blocks())

    def ids(self) -> Any:
        ids = self.source.ids()
        return None if ids is None else ids[::2]


class _Rules:
    """The site's gate, asked as if the study ran: the same cohort and masks, nothing sent."""

    def __init__(self, study: Study, holding: Holding, policy: Policy) -> None:
        self.mode = study.aggregation.mode
        self.cohort = tuple(site.name for site in study.sites)
        self.run = f"plan-{digest_of(study.text)}"
        self.holding = holding
        everyone = Vaults(Identity.new(), dict.fromkeys(self.cohort, b""))
        self.gate = Gate(holding.party, policy, Ledger(), lambda: everyone)

    @property
    def out(self) -> bool:
        """Whether the site has abstained."""
        return self.gate.ledger.tally(self.run).abstained is not None

    def masked(self, call: Call) -> bool:
        return self.mode != "plain" and call.want == "total"

    def verdict(self, call: Call, release: Release) -> str | None:
        """The code to refuse with, or None."""
        handler = HANDLERS[call.handler]
        masks = "lasting-1" if self.masked(call) else None
        real = replace(call, run=self.run, cohort=self.cohort, masks=masks, veiled=self.mode == "blind")
        turn = Turn(self.holding, (0, call.step), {}, missing_in(call.message))
        code = self.gate.admit(real, handler, turn.rows) or self.gate.judge(real, handler, release, turn)
        if code is None:
            self.gate.account(real, release, wire.size(release))
        return code


def _site(study: Study, party: PartyId, source: Any) -> Site:
    own = next((site for site in study.sites if site.name == party), None)
    if own is None:
        names = ", ".join(site.name for site in study.sites)
        raise StudyError(f"the study has no site '{party}'; name one of {names} with --name")
    return replace(own, source=source, policy="none")


def _rehearsed(study: Study, fed: Federation, *, strict: bool = True) -> list[tuple[Call, Release]]:
    """Every question of a run on one site's rows, with its answer."""
    engine = _Noting(fed.engine)
    fed.engine = engine
    fed.use(engine)
    try:
        _run(study, fed)
    except FedclustError:
        if strict:
            raise
    return engine.noted


def _run(study: Study, fed: Federation) -> None:
    estimator, choice = study.estimator(fed.columns), study.cluster.choice
    if choice is not None:
        found = select_k(estimator, fed, choice.ks, **choice.how)
        describe(found.model, fed, found)
        return
    if "tol" in estimator.get_params():
        estimator.set_params(tol=None)  # as many rounds as there may be
    describe(estimator.fit(fed), fed)


def _shaken(fed: Federation, party: PartyId) -> Federation:
    holding = fed.holdings[party]
    return Federation.over(
        {party: (Holding(party, _Shaken(holding.source), holding.schema), PROFILES["none"])},
        columns=fed.columns,
        split=fed.split,
        schema=fed.schema,
        run=None,
        seed=fed.seed,
        aggregation=fed.aggregation,
        align=fed.align,
    )


def _questions(noted: list[tuple[Call, Release]], known: set[str], rules: _Rules) -> Iterator[Question]:
    """One line for each question, for what is known beforehand apart from what is not."""
    found: dict[tuple[str, bool], Question] = {}
    for number, (call, release) in enumerate(noted, 1):
        out = rules.out
        sure, code, size = call.question in known, rules.verdict(call, release), wire.size(release)
        place = (call.handler, sure)
        before = found.get(place) or Question(call.handler, 0, known=sure, masked=rules.masked(call))
        found[place] = replace(
            before,
            times=before.times + 1,
            size=max(before.size, size),
            release=rules.gate.covered(release) if before.release is None or size > before.size else before.release,
            passed=before.passed + (code is None),
            code=before.code or code,
            place=number if code and not before.code else before.place,
            out=out if code and not before.code else before.out,
        )
    for (name, sure), question in found.items():
        other = found.get((name, not sure))
        # One count for a question, however much of it is known.
        yield question if other is None else replace(question, times=question.times + other.times)


def _possible(study: Study, found: list[Question]) -> Iterator[Question]:
    """With those of a search for K, which goes other ways on all sites' rows: each may be asked, and often."""
    choice = study.cluster.choice
    if choice is None or study.split == "columns":
        yield from found
        return
    most = asks_for(study.cluster.most)
    for question in found:
        yield replace(question, allowed=most) if question.name in SEARCHING else question
    for name in SEARCHING:
        if all(question.name != name for question in found):
            yield Question(name, 0, masked=study.aggregation.mode != "plain", allowed=most)


def _keys(study: Study, noted: list[tuple[Call, Release]]) -> Iterator[Question]:
    """The questions by which keys are agreed on; they are about no row."""
    sums = sum(call.want == "total" for call, _ in noted)
    often = study.aggregation.mode == "secure" and study.cluster.options.get("quorum", "all") != "all"
    labels = study.cluster.options.get("opens") == "labels"
    sealed = (study.align is not None and len(study.sites) > 1) or labels
    mode = "secure" if sealed and study.aggregation.mode == "plain" else study.aggregation.mode
    for name in LEAVING_ON_THE_WAY if often else KEYS.get(mode, ()):
        yield Question(name, sums if often else 1)
    for name, times in ALIGNING.items() if study.align is not None and len(study.sites) > 1 else ():
        yield Question(name, times or len(study.sites) - 1)
    for name, times in column_labels.questions(_most_rounds(study), study.cluster.most).items() if labels else ():
        yield Question(name, times)


def _most_rounds(study: Study) -> int:
    return int(study.estimator(tuple(study.schema)).get_params()["max_iter"])
