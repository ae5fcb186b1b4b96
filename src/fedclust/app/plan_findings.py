"""What a data steward should know before signing: refusals, risks and contradictions of a plan, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fedclust.app.site_plan import PlannedQuestion, SitePlan
from fedclust.app.table_risks import SmallClusters
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import REMEDIES
from fedclust.privacy.accountant import epsilon_from_rho

Severity = Literal["refused", "high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("refused", "high", "medium", "low")
MAX_NAMED_LEVELS = 5  # of each finding; --json has all
DISTANCES_QUESTION = "column_split.measure_distances"


@dataclass(frozen=True)
class Finding:
    """One thing to know, with its remedy; `contradicts` means that one setting undoes what another one promises."""

    severity: Severity
    code: str
    text: str
    remedy: str = ""
    contradicts: bool = False


def find_findings(plan: SitePlan) -> tuple[Finding, ...]:
    """Return all findings about a plan, worst first."""
    found = [*_refusals(plan), *_rule_findings(plan), *_opening_findings(plan), *_column_split_findings(plan)]
    found += _own_answer_findings(plan)
    found += [_noise_finding(plan)] if plan.study.noise else _table_findings(plan)
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def refused_questions_in_words(plan: SitePlan) -> Iterator[tuple[PlannedQuestion, str]]:
    """Yield each question that a rule refuses, with the reason; not those after the site left the run."""
    for question in plan.refused_questions:
        if not question.site_is_out:
            yield question, REMEDIES[str(question.code)]


def _refusals(plan: SitePlan) -> Iterator[Finding]:
    for name in plan.refused_columns:
        yield Finding(
            "refused",
            "column-not-allowed",
            f"The study uses the column '{name}', which `columns` in this site's [policy] does not list.",
            "Ask the study's author to leave the column out, or add it to the list.",
        )
    if not plan.is_affordable:
        yield Finding(
            "refused",
            "over-budget",
            "This site's privacy budget is too small for the study.",
            "Ask the study's author for a smaller epsilon.",
        )
    for question, reason in refused_questions_in_words(plan):
        what, _, remedy = reason.partition("; ")
        yield Finding(
            "refused",
            str(question.code),
            f"Message {question.message_number:,} of the run, {question.name}: {what}.",
            _as_sentence(remedy),
        )


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _rule_findings(plan: SitePlan) -> Iterator[Finding]:
    if plan.policy.has_no_rules:
        yield Finding(
            "high",
            "no-rules",
            f"The policy '{plan.policy.name}' has no rules: the site answers whatever it is asked.",
            'Set profile = "standard" or a stricter one in [policy] of site.toml.',
        )
    budget = plan.budget
    if plan.study.noise and (budget is None or budget.rho_limit is None):
        yield Finding(
            "low",
            "no-budget",
            "This site has no privacy budget, so nothing adds up what several studies reveal about a row.",
            "Set epsilon in [policy] of site.toml.",
        )


def _opening_findings(plan: SitePlan) -> Iterator[Finding]:
    """Yield what is wrong with the sums of clusters that the study opens."""
    if not plan.opens_cluster_sums or plan.study.noise:
        return
    floor, own_floor, plain = plan.opening_floor, plan.policy.min_cell, plan.study.aggregation.mode == "plain"
    if plan.shown_rows:
        yield Finding(
            "high",
            "rows-recovered",
            f"From what the rehearsal opened, attacks recover {_rows(plan.shown_rows)} of this site.",
            "Ask the study's author for secure aggregation, for opening = 'floored' (k-means), for fewer clusters, or "
            "for an epsilon.",
        )
    if plain and floor and len(plan.study.sites) > 1:
        yield Finding(
            "high",
            "floor-undone",
            f"Sums over all sites are opened only if at least {floor} rows have changed, but aggregation is plain: "
            "the coordinator sees this site's own part of each sum, in which a single row may have changed.",
            'Ask for aggregation = "secure".',
            contradicts=True,
        )
    if not plain and floor < own_floor and not floor:
        yield Finding(
            "medium",
            "floor-not-applied",
            f"This site's floor of {own_floor} rows does not protect sums over all sites. The study opens them "
            "however few rows have changed since the sum before.",
            'Ask for k-means with opening = "floored", or for epsilon.',
        )
    elif not plain and floor < own_floor:
        yield Finding(
            "medium",
            "floor-below-own",
            f"The study opens sums from {floor} rows on, and this site's own floor is {own_floor} rows.",
            f"Ask for floor = {own_floor} in [privacy].",
            contradicts=True,
        )


def _column_split_findings(plan: SitePlan) -> Iterator[Finding]:
    if DISTANCES_QUESTION not in {question.name for question in plan.questions} or plan.study.noise:
        return
    plain = plan.study.aggregation.mode == "plain"
    yield Finding(
        "high" if plain else "medium",
        "distances",
        "The run opens the distance of every row to every centre, "
        + ("over this site's columns alone" if plain else "added up over the sites")
        + f". From them {'this site' if plain else 'the joined table'} can be computed up to a rotation, and exactly "
        "by somebody who knows a few of the rows.",
        'Ask for opens = "labels", which needs three sites.',
    )


def _own_answer_findings(plan: SitePlan) -> Iterator[Finding]:
    fields = [d for question in plan.questions for d in HANDLERS[question.name].schema.values() if d.combine == "each"]
    if any(d.kind == "points" and d.floor == 1 for d in fields):
        yield Finding(
            "high",
            "points-may-be-rows",
            "This site sends points of its own, and any of them may be an exact copy of a row.",
            "Ask for a method whose points are means of several rows, such as summary-clustering.",
        )
    if any(d.kind == "weights" for d in fields):
        yield Finding(
            "medium",
            "weights",
            "This site sends the weights of a model that was trained on its rows. Whoever has them can guess, better "
            "than by chance, whether a known row was among those rows.",
            "Ask for epsilon, or agree only with many rows for each cluster.",
        )


def _noise_finding(plan: SitePlan) -> Finding:
    delta = plan.delta
    return Finding(
        "low",
        "noise",
        f"Noise covers each row (epsilon {epsilon_from_rho(plan.price_rho, delta):.3g} at delta {delta:g}), so rare "
        "levels, rows far from the others and small clusters are not listed as risks.",
    )


def _table_findings(plan: SitePlan) -> Iterator[Finding]:
    """Yield the rows of this table that sums may show, however many other rows there are."""
    risks = plan.risks
    where = "" if len(plan.study.sites) == 1 else " unless the other sites have more of them"
    lone = [level for level in risks.rare_levels if level.rows == 1]
    few = [level for level in risks.rare_levels if level.rows > 1]
    remedy = "Merge the level with another one, or ask the study's author to leave the column out."
    if lone:
        names = _names([f"{level.column} = {level.level}" for level in lone])
        yield Finding(
            "high",
            "lone-level",
            f"One row alone has {names}. Sums of products show the values of this row in all columns{where}.",
            remedy,
        )
    if few:
        names = _names([f"{level.column} = {level.level} ({level.rows} rows)" for level in few])
        yield Finding(
            "medium",
            "rare-level",
            f"Fewer than {risks.floor} rows have {names}. Sums of products show their means{where}.",
            remedy,
        )
    if risks.far_rows:
        named = [f"'{far.column}' ({_rows(far.rows)}: {far.share:.0%})" for far in risks.far_rows]
        yield Finding(
            "medium",
            "far-rows",
            f"A few rows far from the others make up most of the spread of {_names(named)}. The sums of such a "
            "column are almost the values of those rows.",
            "Check the largest values for errors and for codes of missing values, or cap the column before the study.",
        )
    yield from _cluster_findings(risks.clusters, risks.floor)
    if 0 < risks.left_out < risks.floor:
        yield Finding(
            "medium",
            "few-left-out",
            f"{_rows(risks.left_out).capitalize()} of this site {'has' if risks.left_out == 1 else 'have'} missing "
            "values and are left out. A second study without the incomplete columns would show them by difference.",
            "Agree on one set of columns for all studies, or fill the values in.",
        )


def _cluster_findings(clusters: SmallClusters, floor: int) -> Iterator[Finding]:
    remedy = "Ask for fewer clusters, or check those rows: they may be errors."
    if clusters.lone:
        yield Finding(
            "high",
            "lone-row",
            f"In the rehearsal, {_clusters(clusters.lone)} of {clusters.clusters} "
            f"{'holds' if clusters.lone == 1 else 'hold'} a single row of this site. The centre of such a cluster "
            "is that row, unless the other sites have rows near it.",
            remedy,
        )
    if clusters.small > clusters.lone:
        yield Finding(
            "medium",
            "small-cluster",
            f"In the rehearsal, {_clusters(clusters.small - clusters.lone)} of {clusters.clusters} "
            f"{'holds' if clusters.small - clusters.lone == 1 else 'hold'} fewer than {floor} rows of this site.",
            remedy,
        )


def _names(names: list[str]) -> str:
    shown = names[:MAX_NAMED_LEVELS]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f", and {more} more (see --json)" if more else "")


def _clusters(count: int) -> str:
    return "one cluster" if count == 1 else f"{count} clusters"


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count:,} rows"
