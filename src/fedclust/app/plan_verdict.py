"""A plan's verdict in plain words: whether the site takes part, who learns what, how many rows, what a signature binds.

Programs get the same facts from `verdict_document`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fedclust.app.plan_findings import SEVERITIES, Finding, find_findings
from fedclust.app.plan_verification import verification_sentence
from fedclust.app.site_plan import SitePlan
from fedclust.core.effects import HANDLERS
from fedclust.privacy.accountant import epsilon_from_rho, meaning
from fedclust.privacy.attacks.cell_differences import MAX_COMPARED_CELLS

BINDING = (
    "An approval covers this text of the study, these rules, this noise on rows, these site keys and this version of "
    "fedclust, with each question at most as often as listed in the details, until its last day."
)
OWN_ANSWERS = {  # what a site sends as its own answer, by class of field
    "counts": "its own counts of rows",
    "points": "points computed from its rows",
    "weights": "weights of models trained on its rows",
}


@dataclass(frozen=True)
class PlanVerdict:
    """What a plan comes to."""

    plan: SitePlan

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        return find_findings(self.plan)

    @property
    def decision(self) -> str:
        """Return "allowed" or "refused"."""
        return "allowed" if self.plan.is_allowed else "refused"

    @property
    def contradictions(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.contradicts)

    @property
    def headline(self) -> str:
        """Say in a few words whether the site would answer, and how serious the findings are."""
        counts = Counter(finding.severity for finding in self.findings)
        if self.decision == "refused":
            reasons = counts["refused"]
            return f"REFUSED by this site's rules ({reasons} {'reason' if reasons == 1 else 'reasons'})."
        risks = [f"{counts[s]} {s}" for s in SEVERITIES[1:3] if counts[s]]
        found = f"risks: {', '.join(risks)}" if risks else "no high or medium risk was found"
        return f"ALLOWED by this site's rules; {found}."

    def sentences(self) -> Iterator[str]:
        """Yield the verdict's sentences in order; together they are one paragraph."""
        yield self.headline
        yield from self.who_learns.values()
        yield self.rows_sentence
        yield from _spending_sentences(self.plan)
        yield self._standout_sentence
        yield (
            " ".join(finding.text for finding in self.contradictions)
            if self.contradictions
            else "No setting of the study contradicts another one."
        )
        yield BINDING
        yield verification_sentence(self.plan.study)
        if self.plan.policy.signatures > 1:
            yield f"This site answers only after {self.plan.policy.signatures} stewards have signed."

    @cached_property
    def who_learns(self) -> dict[str, str]:
        """Return what the coordinator, the other sites and the readers of the result learn, each as a sentence."""
        return {
            "coordinator": _coordinator_sentence(self.plan),
            "other_sites": _other_sites_sentence(self.plan),
            "readers": _readers_sentence(self.plan),
        }

    @property
    def rows_sentence(self) -> str:
        """Say how many rows whoever sees the sums can work out, and the largest number that could follow."""
        plan, who = self.plan, _observer(self.plan)
        if plan.study.noise:
            return f"The noise keeps {who} from working out single rows."
        if plan.study.split == "columns":
            return "How many rows follow from what a column split opens was not measured."
        if not plan.opens_cluster_sums:
            return "The attacks of fedclust on sums of clusters do not apply, because the study opens no such sums."
        if plan.shown_rows is None:
            return "How many rows can be worked out was not measured, because rows may have missing values."
        whose = "this site" if plan.study.aggregation.mode == "plain" else "all sites together"
        linear = " (they are weighted, and can also be solved as equations)" if plan.weighs_rows else ""
        return (
            f"Even if it follows the rules, {who} can work out {plan.shown_rows or 'none'} of the {plan.rows:,} rows "
            "of this table by the attacks of fedclust; this was measured in a rehearsal on this site's rows alone. The "
            f"attacks compare up to {MAX_COMPARED_CELLS:,} sums by twos and threes, and divide sums of products. At "
            f"most {plan.max_sums:,} rows of {whose} follow by adding and subtracting the sums of groups of "
            f"rows{linear}; "
            "this bound does not cover sums of products."
        )

    @property
    def _standout_sentence(self) -> str:
        risks = self.plan.risks
        parts = [
            _count(len(risks.rare_levels), "rare level"),
            _count(len(risks.far_rows), "column") + " dominated by few rows",
            _count(risks.clusters.lone, "cluster") + " of a single row",
        ]
        return f"In this table fedclust found {', '.join(parts[:-1])} and {parts[-1]} (floor: {risks.floor} rows)."


def verdict_document(verdict: PlanVerdict) -> dict[str, Any]:
    """Return the verdict for programs."""
    plan = verdict.plan
    return {
        "decision": verdict.decision,
        "text": " ".join(verdict.sentences()),
        "who_learns": verdict.who_learns,
        "shown_rows": plan.shown_rows,
        "max_sums": plan.max_sums,
        "max_sums_of": "this site" if plan.study.aggregation.mode == "plain" else "all sites",
        "table": plan.risks.to_dict(),
        "contradictions": [finding.code for finding in verdict.contradictions],
        "binds": BINDING,
        "findings": [asdict(finding) for finding in verdict.findings],
    }


def _observer(plan: SitePlan) -> str:
    """Return who sees the sums of the run."""
    return f"the leading site '{_lead(plan)}'" if plan.study.aggregation.is_blind else "the coordinator"


def _lead(plan: SitePlan) -> str:
    return plan.study.aggregation.lead or plan.study.sites[0].name


def _coordinator_sentence(plan: SitePlan) -> str:
    mode, sites = plan.study.aggregation.mode, len(plan.study.sites)
    own = _own_answers(plan)
    also = f", and {own}" if own else ""
    distances = any(q.name == "column_split.measure_distances" for q in plan.questions)
    of_rows = ", among them the distance of every row to every centre" if distances else ""
    if mode == "plain":
        return f"Aggregation is plain, so the coordinator sees this site's own part of every sum{of_rows}{also}."
    if mode == "secure":
        return (
            f"The coordinator sees sums over all {sites} sites{of_rows}{also}; it does not see this site's own part "
            "of a sum."
        )
    leads = "This site leads: it" if _lead(plan) == plan.party else f"The leading site '{_lead(plan)}'"
    return (
        "The coordinator sees only the lengths and times of messages. "
        f"{leads} sees sums over all {sites} sites{of_rows}{also}; it does not see another site's part of a sum."
    )


def _own_answers(plan: SitePlan) -> str:
    fields = [d for q in plan.questions for d in HANDLERS[q.name].schema.values() if d.combine == "each"]
    whose = "this site's own answers"
    named = [text for kind, text in OWN_ANSWERS.items() if any(d.kind == kind for d in fields)]
    return f"{whose}: {' and '.join(named)}" if named else ""


def _other_sites_sentence(plan: SitePlan) -> str:
    if len(plan.study.sites) == 1:
        return "There is no other site."
    seen = "the cluster of each row, and the questions" if plan.study.split == "columns" else "the questions"
    rows = ", and which rows all of them hold" if plan.study.align is not None else ""
    sealed = [d for q in plan.questions for d in HANDLERS[q.name].schema.values() if d.combine == "messages"]
    own = "models trained on its rows" if any(d.kind == "weights" for d in sealed) else "no numbers of this site"
    return (
        f"The other sites see {seen}, such as the centres of an iteration{rows}, and {own}. {_collusion(plan)}".strip()
    )


def _collusion(plan: SitePlan) -> str:
    """Say who could compute this site's part of a sum by putting together what they know."""
    if len(plan.study.sites) == 2:
        return "From a result over two sites, the other site can compute this site's part."
    if plan.study.aggregation.mode == "plain":
        return ""
    return "All of them together with the coordinator could compute this site's part."


def _readers_sentence(plan: SitePlan) -> str:
    by_rows = plan.study.split == "rows"
    held = (
        "the label of each row"
        if plan.study.cluster.options.get("opens") == "labels"
        else "what the model holds, such as centres, sizes and spreads of clusters"
    )
    counts = plan.study.aggregation.mode == "plain" and by_rows and not plan.study.noise
    by_site = f", and how many rows of each site are in each cluster{_hidden(plan)}" if counts else ""
    return f"Readers of the result see {held}{by_site}."


def _hidden(plan: SitePlan) -> str:
    return f" (counts below {plan.policy.min_cell} are hidden)" if plan.policy.min_cell else ""


def _spending_sentences(plan: SitePlan) -> Iterator[str]:
    """Say what the study reveals about each row under differential privacy, and what is left of the site's budget."""
    if not plan.price_rho:
        return
    delta = plan.delta
    epsilon = epsilon_from_rho(plan.price_rho, delta)
    yield f"Differential privacy: epsilon {epsilon:.3g} at delta {delta:g} for each row. {meaning(epsilon, delta)}"
    budget = plan.budget
    if budget is not None and budget.rho_limit is not None:
        spent, after = (
            epsilon_from_rho(rho, budget.delta) for rho in (budget.spent_rho, budget.spent_rho + plan.price_rho)
        )
        yield (
            f"This site's budget for all studies is epsilon {budget.epsilon:g} at delta {budget.delta:g}. {spent:.3g} "
            f"has been spent already; after this study the total would be {after:.3g}."
        )


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
