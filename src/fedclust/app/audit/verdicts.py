"""Runs the attacks on what participants of a run saw, and states each result in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedclust.app.audit.recovered_rows import all_cells, opened_products
from fedclust.app.audit.replay import RunHistory
from fedclust.app.audit.row_tags import RowTags
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import HANDLERS
from fedclust.core.types import Array, Floats, PartyId
from fedclust.privacy import attacks
from fedclust.privacy.attacks import Observation, RecoveredPoint
from fedclust.privacy.attacks.cell_differences import rows_by_differences
from fedclust.privacy.attacks.fuzzy_sums import has_solvable_sums
from fedclust.privacy.attacks.products import rows_by_products
from fedclust.privacy.attacks.scoring import EXACT_TOLERANCE, NEARLY_TOLERANCE

ATTACK_TITLES = {
    "a": "one site's sums, compared between rounds",
    "a2": "clusters of one row, hidden by their site",
    "a3": "sums over all sites, compared between rounds",
    "a4": "sums over all sites, compared by twos and threes over all rounds and fits",
    "a5": "products with columns in which one row alone differs",
    "b": "one site's fuzzy sums, solved as equations",
    "b3": "fuzzy sums over all sites, solved as equations",
    "c": "rows reconstructed from distances",
    "d": "the same sum with and without a site",
    "e": "points that sites sent",
}
MAX_UNFOLDED_ROWS = 2000  # rows to reconstruct from distances
Attack = Callable[[Sequence[Observation]], Sequence[RecoveredPoint]]


@dataclass(frozen=True)
class Verdict:
    """What one attack recovered from what one observer saw; exact and nearly are None without rows to compare with."""

    observer: str
    attack: str
    title: str
    candidates: int
    exact: int | None
    nearly: int | None
    wrong: int | None
    sites: tuple[PartyId, ...]
    sentence: str

    @property
    def is_harmful(self) -> bool:
        """Whether rows were recovered, or could not be checked; a few near misses among many happen by chance."""
        if self.exact is None:
            return self.candidates > 0
        return self.exact > 0 or (self.nearly or 0) > (self.wrong or 0)


def judge_run(history: RunHistory) -> list[Verdict]:
    """Run every attack that applies: at the coordinator, then at the leading site, then at each site."""
    found = _attack_observations("coordinator", history.coordinator, history)
    if history.lead:
        found += _attack_observations("leading site", history.lead, history)
    for party, seen in history.sites.items():
        if history.split == "rows" and any(_is_hard(one) for one in seen):
            own = _rows_as_asked(history.rows.get(party), seen)
            others = {p: rows for p, rows in history.rows.items() if p != party}
            what = attacks.attack_sent_centers(seen, own)
            title = "the centres sent to all sites, compared between rounds"
            found.append(_make_verdict(f"site {party}", "a3", what, others, title=title))
    return found


def _attack_observations(observer: str, seen: list[Observation], history: RunHistory) -> list[Verdict]:
    own, sums = [s for s in seen if len(s.parties) == 1], [s for s in seen if len(s.parties) > 1]
    if history.split == "columns":
        return [_try_unfolding(observer, seen, history)]
    plan: list[tuple[str, Attack, list[Observation]]] = []
    if any(one.cells for one in seen):
        plan += [("a", attacks.attack_by_differencing, own), ("a3", attacks.attack_by_differencing, sums)]
        plan += [("a2", attacks.attack_singletons, own)] if _hides_singletons(seen) else []
        plan += (
            [("b", attacks.attack_fuzzy_sums, own), ("b3", attacks.attack_fuzzy_sums, sums)]
            if any(map(_is_fuzzy, seen))
            else []
        )
        plan += [("d", attacks.attack_by_cohorts, sums)]
    if any(one.has_fields(name) for one in own for name in one.roles.points):
        plan += [("e", lambda s: (*attacks.attack_shown_points(s), *attacks.attack_remainders(s)), own)]
    found = [_try_attack(observer, name, attack, what, rows=history.rows) for name, attack, what in plan if what]
    return [*found, *_compare_cells(observer, sums, history), *_divide_products(observer, sums, history)]


def _compare_cells(observer: str, sums: list[Observation], history: RunHistory) -> list[Verdict]:
    """Count the rows that are a difference of at most three sums; most such differences are no rows, so rows must be
    there to compare with.
    """
    if not history.rows:
        return []
    rows = np.concatenate(list(history.rows.values()))
    owners = np.repeat(list(history.rows), [len(own) for own in history.rows.values()])
    tags = RowTags.draw(rows)
    cells = all_cells(sums, history.groups if sums else (), tags)
    if not cells:
        return []
    shown = rows_by_differences(cells, rows, tags.tags)
    return [_make_bound(observer, "a4", owners[shown], "from two or three sums")]


def _divide_products(observer: str, sums: list[Observation], history: RunHistory) -> list[Verdict]:
    """Count the rows that products show, because they alone differ from the others of a cell in some column."""
    if not (history.rows and sums):
        return []
    rows = np.concatenate(list(history.rows.values()))
    owners = np.repeat(list(history.rows), [len(own) for own in history.rows.values()])
    products = [*opened_products(sums, history.groups, rows)]
    if not products:
        return []
    return [_make_bound(observer, "a5", owners[rows_by_products(products, rows)], "from sums of products")]


def _make_bound(observer: str, attack: str, owners: Array, source: str) -> Verdict:
    """The verdict on an attack that counts the rows which whoever knows the right sums can compute."""
    exact = len(owners)
    sentence = (
        f"{_format_row_count(exact)} can be computed exactly {source}, by whoever knows which to take."
        if exact
        else "No row recovered."
    )
    sites = tuple(sorted(set(owners.tolist())))
    return Verdict(observer, attack, ATTACK_TITLES[attack], exact, exact, 0, 0, sites, sentence)


def _try_attack(
    observer: str, name: str, attack: Attack, what: list[Observation], *, rows: Mapping[PartyId, Floats]
) -> Verdict:
    verdict = _make_verdict(observer, name, attack(what), rows)
    if name in ("b", "b3") and not verdict.candidates and not has_solvable_sums(what):
        sentence = "Not tried: there are more unknowns than equations, or too many unknowns for the solver."
        return replace(verdict, sentence=sentence)
    return verdict


def _make_verdict(
    observer: str, attack: str, found: Sequence[RecoveredPoint], rows: Mapping[PartyId, Floats], *, title: str = ""
) -> Verdict:
    title = title or ATTACK_TITLES[attack]
    count = len(found)
    if not rows:
        sentence = (
            f"{count_noun(count, 'point looks like a row', 'points look like rows')}. This could not be "
            "checked, because the rows are not available."
            if count
            else "Nothing found."
        )
        return Verdict(observer, attack, title, count, None, None, None, (), sentence)
    if not count:
        return Verdict(observer, attack, title, 0, 0, 0, 0, (), "No row recovered.")
    result = attacks.score(found, rows)
    sentence = (
        f"{_format_row_count(result.exact)} recovered exactly, {_format_row_count(result.nearly)} nearly; "
        f"{result.wrong} "
        "other points match no row."
    )
    return Verdict(observer, attack, title, count, result.exact, result.nearly, result.wrong, result.owners, sentence)


def _try_unfolding(observer: str, seen: list[Observation], history: RunHistory) -> Verdict:
    """Run attack c, given F + 1 true rows: total distances give all columns, a site's share gives its own columns."""
    found = attacks.attack_by_unfolding([_first_rows(one) for one in seen])
    if not found:
        return Verdict(observer, "c", ATTACK_TITLES["c"], 0, 0 if history.rows else None, 0, 0, (), "No row recovered.")
    if not history.rows:
        sentence = (
            "The rows were recovered up to a rotation. This could not be checked, because the rows are not available."
        )
        return Verdict(observer, "c", ATTACK_TITLES["c"], len(found[0].coordinates), None, None, None, (), sentence)
    exact = nearly = 0
    for one in found:
        rows = np.concatenate([history.rows[p] for p in history.rows if p in one.parties], axis=1)[:MAX_UNFOLDED_ROWS]
        width = one.coordinates.shape[1]
        if len(rows) != len(one.coordinates) or len(rows) <= width + 1:
            continue
        at = np.linspace(0, len(rows) - 1, width + 1).astype(np.int64)
        gap = np.abs(attacks.complete_rows(one, rows[at], at) - rows)
        scale, span = np.abs(rows).max(axis=0), rows.max(axis=0) - rows.min(axis=0)
        hit = int((gap <= EXACT_TOLERANCE * scale).all(axis=1).sum()) - width - 1
        near = int((gap <= NEARLY_TOLERANCE * span).all(axis=1).sum()) - width - 1
        exact, nearly = max(exact, hit, 0), max(nearly, near - hit, 0)
    sentence = (
        "The rows were recovered up to a rotation. Anyone who already knows F + 1 rows, where F is the number of "
        f"columns, can recover the others: {_format_row_count(exact)} exactly and {_format_row_count(nearly)} nearly."
    )
    return Verdict(observer, "c", ATTACK_TITLES["c"], len(found[0].coordinates), exact, nearly, 0, (), sentence)


def _first_rows(seen: Observation) -> Observation:
    """Return the distances of the first rows only; they are enough to test the reconstruction."""
    if not seen.has_fields("d2") or seen.floats_of("d2").ndim != 2:
        return seen
    start = int(seen.asked.get("start", 0))
    fields = {"d2": seen.floats_of("d2")[:, : max(0, MAX_UNFOLDED_ROWS - start)]}
    return Observation(seen.step, seen.question, seen.parties, seen.asked, fields if start < MAX_UNFOLDED_ROWS else {})


def overall_verdict(verdicts: Sequence[Verdict], history: RunHistory) -> str:
    """Return the verdict on the whole run, and which answers it says little about."""
    verdict, unknown = _judge_attacks(verdicts, history), _foreign_questions(history)
    if not unknown:
        return verdict
    return (
        f"{verdict} The attacks were written for fedclust's own answers, so the verdict says little about the answers "
        f"to {', '.join(unknown)}."
    )


def _foreign_questions(history: RunHistory) -> list[str]:
    """Return the questions of other packages whose answers somebody saw: the attacks may not know their fields."""
    seen = {one.question for own in (history.coordinator, *history.sites.values()) for one in own}
    return sorted(name for name in seen if name in HANDLERS and HANDLERS[name].is_foreign)


def _judge_attacks(verdicts: Sequence[Verdict], history: RunHistory) -> str:
    at = [v for v in verdicts if v.observer == "coordinator" and v.is_harmful]
    elsewhere = sorted({v.observer for v in verdicts if v.observer != "coordinator" and v.is_harmful})
    if history.why_unchecked:
        head = f"Not checked, because {history.why_unchecked}. "
        many = sum(v.candidates for v in verdicts)
        return head + (
            f"{count_noun(many, 'point looks like a row', 'points look like rows')}."
            if many
            else "No attack found anything."
        )
    if not at and not elsewhere:
        return "No attack in this suite recovered a row of this run. This does not prove that no attack can."
    parts = []
    if at:
        names = ", ".join(dict.fromkeys(v.attack for v in at))
        parts.append(f"Anyone who runs the coordinator, or has its journal, can recover rows (attacks {names}).")
        if history.mode == "plain":
            parts.append(
                "Secure aggregation hides each site's own sums; blind aggregation also hides the sums over all sites."
            )
    else:
        parts.append("The coordinator recovered no row.")
    if elsewhere:
        parts.append(f"Rows of other sites can be recovered at: {', '.join(elsewhere)}.")
    return " ".join(parts)


def audit_document(verdicts: Sequence[Verdict], history: RunHistory) -> dict[str, Any]:
    """Return the audit as a JSON document for programs. It counts rows and shows none."""
    return {
        "format": "fedclust-audit",
        "version": 1,
        "aggregation": history.mode,
        "split": history.split,
        "sites": len(history.parties),
        "answers_seen": len(history.coordinator),
        "checked": not history.why_unchecked,
        "attacks": [asdict(verdict) for verdict in verdicts],
        "verdict": overall_verdict(verdicts, history),
    }


def _rows_as_asked(rows: Floats | None, seen: list[Observation]) -> Floats | None:
    """Return a site's own rows in the scale that the questions use."""
    first = next((one for one in seen if _is_hard(one)), None)
    if rows is None or first is None or first.asked.get("origin") is None:
        return rows
    return np.asarray((rows - first.asked["origin"]) / first.asked["spread"], np.float64)


def _hides_singletons(seen: list[Observation]) -> bool:
    return any(one.asked.get("singletons") or (not one.asked and one.has_fields("hidden")) for one in seen)


def _is_hard(seen: Observation) -> bool:
    return seen.centers is not None and float(seen.asked.get("m", 2.0)) == 1.0


def _is_fuzzy(seen: Observation) -> bool:
    return seen.centers is not None and float(seen.asked.get("m", 1.0)) > 1.0


def _format_row_count(count: int) -> str:
    return count_noun(count, "row")
