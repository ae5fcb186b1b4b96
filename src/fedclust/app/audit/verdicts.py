"""The attacks let loose on a run, and what came of each in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedclust.app.audit.replay import Past
from fedclust.core.types import Floats, PartyId
from fedclust.privacy import attacks
from fedclust.privacy.attacks import Found, Seen
from fedclust.privacy.attacks.fuzzy_sums import solvable
from fedclust.privacy.attacks.scoring import EXACT, NEAR
from fedclust.privacy.attacks.shown_points import SHOWN

TITLES = {
    "a": "one site's sums, round against round",
    "a2": "clusters of one row that a rule hid",
    "a3": "sums over all sites, round against round",
    "b": "one site's fuzzy sums, solved as equations",
    "b3": "fuzzy sums over all sites, solved as equations",
    "c": "distances unfolded into rows",
    "d": "the same sum with and without a site",
    "e": "points that sites showed",
}
MOST_ROWS = 2000  # of a table whose distances are unfolded
Attack = Callable[[Sequence[Seen]], Sequence[Found]]


@dataclass(frozen=True)
class Verdict:
    """What one attack had of what one observer saw; without rows to compare with, exact and nearly are None."""

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
    def harmful(self) -> bool:
        """Rows came out, or what came out could not be checked; a few near ones among many happen by chance."""
        if self.exact is None:
            return self.candidates > 0
        return self.exact > 0 or (self.nearly or 0) > (self.wrong or 0)


def judged(past: Past) -> list[Verdict]:
    """Every attack that applies, first at the coordinator, then at the site that leads, then at each site."""
    found = _sums("coordinator", past.coordinator, past)
    if past.lead:
        found += _sums("leading site", past.lead, past)
    for party, seen in past.sites.items():
        if past.split == "rows" and any(_hard(one) for one in seen):
            own = _as_asked(past.rows.get(party), seen)
            others = {p: rows for p, rows in past.rows.items() if p != party}
            what = attacks.broadcasts(seen, own)
            title = "the centres sent to all, round against round"
            found.append(_verdict(f"site {party}", "a3", what, others, title=title))
    return found


def _sums(observer: str, seen: list[Seen], past: Past) -> list[Verdict]:
    own, sums = [s for s in seen if len(s.parties) == 1], [s for s in seen if len(s.parties) > 1]
    if past.split == "columns":
        return [_unfolded(observer, seen, past)]
    plan: list[tuple[str, Attack, list[Seen]]] = []
    if any(one.has("mass", "pull") for one in seen):
        plan += [("a", attacks.differencing, own), ("a3", attacks.differencing, sums)]
        plan += [("a2", attacks.singletons, own)] if _hides(seen) else []
        plan += [("b", attacks.fuzzy, own), ("b3", attacks.fuzzy, sums)] if any(map(_soft, seen)) else []
        plan += [("d", attacks.cohorts, sums)]
    if any(one.has(name) for one in own for name in SHOWN):
        plan += [("e", lambda s: (*attacks.shown_points(s), *attacks.remainders(s)), own)]
    return [_tried(observer, name, attack, what, rows=past.rows) for name, attack, what in plan if what]


def _tried(observer: str, name: str, attack: Attack, what: list[Seen], *, rows: Mapping[PartyId, Floats]) -> Verdict:
    verdict = _verdict(observer, name, attack(what), rows)
    if name in ("b", "b3") and not verdict.candidates and not solvable(what):
        told = "Not tried: more unknowns than equations, or than the solver of this suite can take."
        return replace(verdict, sentence=told)
    return verdict


def _verdict(
    observer: str, attack: str, found: Sequence[Found], rows: Mapping[PartyId, Floats], *, title: str = ""
) -> Verdict:
    title = title or TITLES[attack]
    count = len(found)
    if not rows:
        told = f"{count} points taken for rows, not checked: the rows are not at hand." if count else "Nothing found."
        return Verdict(observer, attack, title, count, None, None, None, (), told)
    if not count:
        return Verdict(observer, attack, title, 0, 0, 0, 0, (), "No row recovered.")
    result = attacks.score(found, rows)
    told = f"{_rows(result.exact)} recovered exactly, {result.nearly} nearly; {result.wrong} points are no rows."
    return Verdict(observer, attack, title, count, result.exact, result.nearly, result.wrong, result.owners, told)


def _unfolded(observer: str, seen: list[Seen], past: Past) -> Verdict:
    """Attack c, given F + 1 true rows; rows of all columns from total distances, of a site's own from its share."""
    found = attacks.unfolding([_cut(one) for one in seen])
    if not found:
        return Verdict(observer, "c", TITLES["c"], 0, 0 if past.rows else None, 0, 0, (), "No row recovered.")
    if not past.rows:
        told = "The rows came out up to a turn of the space; not checked: the rows are not at hand."
        return Verdict(observer, "c", TITLES["c"], len(found[0].coordinates), None, None, None, (), told)
    exact = nearly = 0
    for one in found:
        rows = np.concatenate([past.rows[p] for p in past.rows if p in one.parties], axis=1)[:MOST_ROWS]
        width = one.coordinates.shape[1]
        if len(rows) != len(one.coordinates) or len(rows) <= width + 1:
            continue
        at = np.linspace(0, len(rows) - 1, width + 1).astype(np.int64)
        gap = np.abs(attacks.completed(one, rows[at], at) - rows)
        scale, span = np.abs(rows).max(axis=0), rows.max(axis=0) - rows.min(axis=0)
        hit = int((gap <= EXACT * scale).all(axis=1).sum()) - width - 1
        near = int((gap <= NEAR * span).all(axis=1).sum()) - width - 1
        exact, nearly = max(exact, hit, 0), max(nearly, near - hit, 0)
    told = (
        "The rows came out up to a turn of the space; whoever knows as many rows as there are columns, and one more, "
        f"has {_rows(exact)} more exactly and {nearly} nearly."
    )
    return Verdict(observer, "c", TITLES["c"], len(found[0].coordinates), exact, nearly, 0, (), told)


def _cut(seen: Seen) -> Seen:
    """Distances of the first rows only: enough to see whether they unfold."""
    if not seen.has("d2") or seen.number("d2").ndim != 2:
        return seen
    start = int(seen.asked.get("start", 0))
    fields = {"d2": seen.number("d2")[:, : max(0, MOST_ROWS - start)]}
    return Seen(seen.step, seen.question, seen.parties, seen.asked, fields if start < MOST_ROWS else {})


def overall(verdicts: Sequence[Verdict], past: Past) -> str:
    """The verdict on the run as a whole."""
    at = [v for v in verdicts if v.observer == "coordinator" and v.harmful]
    elsewhere = sorted({v.observer for v in verdicts if v.observer != "coordinator" and v.harmful})
    if past.why_unchecked:
        head = f"Not checked, for {past.why_unchecked}. "
        many = sum(v.candidates for v in verdicts)
        return head + (f"{many} points were taken for rows." if many else "No attack found anything.")
    if not at and not elsewhere:
        return "No attack of this suite recovered a row of this run. That is no proof that none can."
    parts = []
    if at:
        names = ", ".join(dict.fromkeys(v.attack for v in at))
        parts.append(f"Whoever runs the coordinator, or has its journal, can recover rows (attacks {names}).")
        if past.mode == "plain":
            parts.append("Secure aggregation hides each site's own sums; blind aggregation also the sums over all.")
    else:
        parts.append("The coordinator recovered no row.")
    if elsewhere:
        parts.append(f"Rows of others can be recovered at: {', '.join(elsewhere)}.")
    return " ".join(parts)


def document(verdicts: Sequence[Verdict], past: Past) -> dict[str, Any]:
    """The audit for other tools. It counts rows; it shows none."""
    return {
        "format": "fedclust-audit",
        "version": 1,
        "aggregation": past.mode,
        "split": past.split,
        "sites": len(past.parties),
        "answers_seen": len(past.coordinator),
        "checked": not past.why_unchecked,
        "attacks": [asdict(verdict) for verdict in verdicts],
        "verdict": overall(verdicts, past),
    }


def _as_asked(rows: Floats | None, seen: list[Seen]) -> Floats | None:
    """A site's own rows as the questions look at them."""
    first = next((one for one in seen if _hard(one)), None)
    if rows is None or first is None or first.asked.get("origin") is None:
        return rows
    return np.asarray((rows - first.asked["origin"]) / first.asked["spread"], np.float64)


def _hides(seen: list[Seen]) -> bool:
    return any(one.asked.get("singletons") or (not one.asked and one.has("hidden")) for one in seen)


def _hard(seen: Seen) -> bool:
    return seen.centers is not None and float(seen.asked.get("m", 2.0)) == 1.0


def _soft(seen: Seen) -> bool:
    return seen.centers is not None and float(seen.asked.get("m", 1.0)) > 1.0


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
