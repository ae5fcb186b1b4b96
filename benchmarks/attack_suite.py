"""The attack suite counts the rows that attacks recover from recorded runs, for each aggregation mode: `make attacks`.

Rows are drawn from unit Gaussians around K centres, which are standard normal, and split among sites at random. A run
is c-means from initial centres in a box; attack b uses runs of fuzzy c-means. Attack d, which leaves a site out on
purpose, follows each small run.
"""

from __future__ import annotations

import argparse
import itertools
import json as text
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import fedclust as fc
from fedclust.algorithms.cmeans import row_split
from fedclust.app.audit.observer_record import Recording, record_federation
from fedclust.core.effects import Protocol, total
from fedclust.core.errors import QuorumLost
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.privacy import attacks
from fedclust.privacy.attacks import Observation, RecoveredPoint
from fedclust.privacy.attacks.scoring import score
from fedclust.site.policy import Policy

MODES = ("plain", "secure", "blind")
COHORTS = Policy("cohorts", one_cohort=True, cohort_gap=3)  # no other rules stop the attacks
LEFT_OUT = 1  # number of sets of centres at which one site is left out


@dataclass(frozen=True)
class Case:
    """One run: its sites, rows per site, clusters, columns, rounds and options."""

    bed: str
    sites: int
    rows: int
    k: int
    columns: int
    rounds: int
    seed: int
    paper: bool = False  # use the rule that hides clusters of one row
    m: float = 1.0
    leave_one_out: bool = False
    start: str = "box"
    spread: float = 1.0  # of the centres; with 0, all rows are drawn around one point
    wide: bool = True  # initial centres between -8 and 8, not within two standard deviations of the mean
    split: bool = False  # split by columns instead of rows
    ruled: bool = True  # whether sites answer for one cohort only, as in all policies but "none"

    def tables(self) -> dict[str, Floats]:
        rng = np.random.default_rng((self.seed, self.sites, self.rows, self.k))
        centers = rng.normal(size=(self.k, self.columns)) * self.spread
        label = rng.integers(self.k, size=(self.sites, self.rows))
        X = rng.normal(size=(self.sites, self.rows, self.columns)) + centers[label]
        return {f"site {i + 1}": rows for i, rows in enumerate(X)}


@dataclass(frozen=True)
class Outcome:
    """What an attack recovered from one run: exact rows, near rows, wrong points; and the sites that lost a row."""

    bed: str
    mode: str
    rows: int
    sites: int
    exact: dict[str, int] = field(default_factory=dict)
    nearly: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    losers: dict[str, int] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)  # sums of single sites that cohorts revealed


def cases(*, quick: bool) -> Iterator[Case]:
    """A thousand runs of c-means and a hundred of fuzzy c-means; with `quick`, a few dozen small ones."""
    big = 2 if quick else 6
    if not quick:
        for seed in range(big):
            yield Case("20 sites with 200 rows each, 17 columns, K = 3", 20, 200, 3, 17, 30, seed)
            bed = "20 sites with 200 rows each, 17 columns, K = 3, initial centres near the mean"
            yield Case(bed, 20, 200, 3, 17, 30, seed, wide=False)
            bed = "20 sites with 200 rows each, 17 columns, K = 3, true centres half as far apart"
            yield Case(bed, 20, 200, 3, 17, 30, seed, spread=0.5)
            bed = "20 sites with 200 rows each, 17 columns, K = 3, rows without clusters"
            yield Case(bed, 20, 200, 3, 17, 30, seed, spread=0.0, wide=False)
            yield Case("20 sites with 200 rows each, 17 columns, K = 10", 20, 200, 10, 17, 30, seed)
            bed = "20 sites with 50 rows each, 17 columns, K = 10, clusters of one row hidden"
            yield Case(bed, 20, 50, 10, 17, 30, seed, True)
    rng = np.random.default_rng(0)
    for seed in range(12 if quick else 960 - 6 * big):
        sites, rows, k, columns = (int(rng.integers(*ends)) for ends in ((3, 7), (15, 50), (2, 6), (3, 9)))
        bed = "3 to 6 sites with 15 to 49 rows each, K = 2 to 5"
        paper = seed % 2 == 1
        bed += ", clusters of one row hidden" if paper else ""
        yield Case(bed, sites, rows, k, columns, 8, seed, paper, leave_one_out=True)
    for seed in range(2 if quick else 40):
        bed = "4 sites with 20 rows each, K = 3, no rules on cohorts"
        yield Case(bed, 4, 20, 3, 4, 5, seed, leave_one_out=True, ruled=False)
    for seed in range(1 if quick else 40):
        bed = "5 sites with 12 to 30 rows each, K = 4, init = 'careful'"
        yield Case(bed, 5, 12 + seed % 19, 4, 4, 8, seed, start="careful")
    for seed in range(1 if quick else 20):
        bed = "column split, 3 sites with 2 columns each of the same 60 rows, K = 3, fuzzy c-means"
        yield Case(bed, 3, 60, 3, 2, 8, seed, m=2.0, split=True)
    for seed in range(2 if quick else 50):
        yield Case("fuzzy c-means, 3 sites with 10 rows each, 4 columns, K = 3", 3, 10, 3, 4, 4, seed, m=2.0)
        yield Case("fuzzy c-means, 3 sites with 4 rows each, 4 columns, K = 3", 3, 4, 3, 4, 6, seed, m=2.0)


def attacked(case: Case, mode: str) -> Outcome:
    """One run, and all attacks on the views of its coordinator and of the first site."""
    tables = case.tables()
    if case.split:
        return unfolded(case, mode)
    fed = fc.Federation.local(tables, aggregation=mode, policy=COHORTS if case.ruled else "none")
    recording = record_federation(fed)
    model = _fitted(case, fed)
    if case.leave_one_out:
        _leave_one_out(fed, model, next(iter(tables)))
    seen = recording.coordinator_view()
    own, sums = [s for s in seen if len(s.parties) == 1], [s for s in seen if len(s.parties) > 1]
    out = Outcome(case.bed, mode, case.rows * case.sites, case.sites)
    for name, attack, what in _plan(case, recording, own, sums, next(iter(tables.values()))):
        result = score(attack(what), tables)
        out.exact[name], out.nearly[name], out.wrong[name] = result.exact, result.nearly, result.wrong
        out.losers[name] = len(result.owners)
        if attack is attacks.attack_by_cohorts:
            out.sums[name] = sum(_possible(own, case.rows) for own in attacks.isolate_site_sums(what))
    return out


def unfolded(case: Case, mode: str) -> Outcome:
    """A run split by columns, and how many rows its distances reveal if F + 1 rows are known."""
    tables = case.tables()
    fed = fc.Federation.local(tables, aggregation=mode, split="columns")
    recording = record_federation(fed)
    _fitted(case, fed)
    X = np.concatenate(list(tables.values()), axis=1)
    out = Outcome(case.bed, mode, case.rows, case.sites)
    views = {
        "c": recording.coordinator_view(),
        **({"c at the lead site": recording.lead_view()} if recording.blind else {}),
    }
    for name, seen in views.items():
        whole = [
            one for one in attacks.attack_by_unfolding(seen) if len(one.parties) > 1 and len(one.coordinates) == len(X)
        ]
        known = np.arange(X.shape[1] + 1)
        points = attacks.complete_rows(whole[0], X[known], known)[len(known) :] if whole else ()
        result = score([RecoveredPoint(x, 0, (), "an unfolded row") for x in points], {"all": X})
        out.exact[name], out.nearly[name], out.wrong[name] = result.exact, result.nearly, result.wrong
        out.losers[name] = case.sites if result.exact else 0
    return out


Attack = Callable[[Sequence[Observation]], Sequence[RecoveredPoint]]


def _plan(
    case: Case, recording: Recording, own: list[Observation], sums: list[Observation], rows: Floats
) -> Iterator[tuple[str, Attack, list[Observation]]]:
    """The attacks on a run, and the data they use."""
    if case.m > 1:
        yield "b", attacks.attack_fuzzy_sums, own
        yield "b on sums over all sites", lambda seen: attacks.attack_fuzzy_sums(seen, batches=3), sums
        return
    if case.start == "careful":
        yield "e: points that are rows", attacks.attack_shown_points, own
        yield "e: sixth row from a mean of five", attacks.attack_remainders, own
        return
    yield "a", attacks.attack_by_differencing, own
    yield "a3", attacks.attack_by_differencing, sums
    if case.paper:
        yield "a2", attacks.attack_singletons, own
        yield "a2 on sums over all sites", attacks.attack_singletons, sums
    if case.leave_one_out:
        yield "d", attacks.attack_by_cohorts, sums
    yield "a3 at a site", lambda seen: attacks.attack_sent_centers(seen, rows), recording.site_view("site 1")
    if recording.blind:
        yield "a3 at the lead site", attacks.attack_by_differencing, recording.lead_view()
        if case.leave_one_out:
            yield "d at the lead site", attacks.attack_by_cohorts, recording.lead_view()


def _fitted(case: Case, fed: fc.Federation) -> Any:
    settings: dict[str, Any] = {
        "init": case.start,
        "max_iter": case.rounds,
        "random_state": case.seed,
        "bounds": (-8, 8) if case.wide else None,
    }
    settings["tol"] = None if case.m > 1 else 0.0
    if case.m > 1:
        return fc.FuzzyCMeans(case.k, m=case.m, **settings).fit(fed)
    return fc.KMeans(case.k, singletons="paper" if case.paper else None, **settings).fit(fed)


def _leave_one_out(fed: fc.Federation, model: Any, left_out: str) -> None:
    """The same sums with and without one site, at a few sets of centres."""
    others = tuple(party for party in fed.parties if party != left_out)
    width = model.cluster_centers_.shape[1]
    view = View(np.full(width, 4, np.int32))
    rng = np.random.default_rng(0)

    def ask() -> Protocol[None]:
        for _ in range(LEFT_OUT):
            centers = model.cluster_centers_ + 0.3 * rng.normal(size=model.cluster_centers_.shape)
            for among in (None, others):
                try:
                    yield from total(row_split.moments, row_split.make_question(view, centers, 1.0), among=among)
                except QuorumLost:
                    continue  # the sites refused; the coordinator tries the next set

    try:
        fed.run(ask())
    except QuorumLost:
        return


def _possible(seen: Observation, rows: int) -> bool:
    """Whether a difference of sums belongs to one site: its counts add up to the site's rows."""
    return seen.has_fields("mass") and bool(
        (seen.floats_of("mass") >= 0).all() and seen.floats_of("mass").sum() == rows
    )


def measured(
    *, quick: bool = False, only: str = "", workers: int = 2, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """All runs in all modes, or those whose name contains `only`, with results by bed, mode and attack."""
    jobs = [(case, mode) for case in cases(quick=quick) if only in case.bed for mode in MODES]
    began, done = time.monotonic(), list[Outcome]()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for i, one in enumerate(pool.map(attacked, *zip(*jobs, strict=True), chunksize=4), 1):
            done.append(one)
            if i % 50 == 0:
                tell(f"{i} of {len(jobs)} runs, {time.monotonic() - began:.0f} s")
    return {"runs": len(jobs), "seconds": round(time.monotonic() - began, 1), "results": list(_summed(done))}


def _summed(done: list[Outcome]) -> Iterator[dict[str, Any]]:
    """One line for each bed, attack and mode."""
    by = lambda o: (o.bed, MODES.index(o.mode))  # noqa: E731
    for (bed, mode), group in itertools.groupby(sorted(done, key=by), key=by):
        some = list(group)
        for attack in some[0].exact:
            hit = [o.exact[attack] for o in some]
            yield {
                "bed": bed,
                "mode": MODES[mode],
                "attack": attack,
                "runs": len(some),
                "runs_with_exact_rows": sum(n > 0 for n in hit),
                "exact_rows": sum(hit),
                "exact_rows_per_run": round(sum(hit) / len(some), 2),
                "share_of_rows": round(sum(hit) / sum(o.rows for o in some), 4),
                "share_of_sites": round(sum(o.losers[attack] for o in some) / sum(o.sites for o in some), 4),
                "near_rows": sum(o.nearly[attack] for o in some),
                "wrong_points": sum(o.wrong[attack] for o in some),
                **_sums(attack, some),
            }


def _sums(attack: str, some: list[Outcome]) -> dict[str, int]:
    if attack not in some[0].sums:
        return {}
    return {"sums_of_one_site": sum(o.sums[attack] for o in some), "of": LEFT_OUT * len(some)}


def table(found: dict[str, Any]) -> str:
    """The results as a Markdown table: exactly recovered rows per run, and the share of runs with any."""
    lines = ["| runs | attack | plain | secure | blind |", "|---|---|---|---|---|"]
    key = lambda r: (r["bed"], r["attack"])  # noqa: E731
    for (bed, attack), group in itertools.groupby(sorted(found["results"], key=key), key=key):
        cells = {r["mode"]: _cell(r) for r in group}
        lines.append(f"| {bed} | {attack} | " + " | ".join(cells.get(mode, "") for mode in MODES) + " |")
    return "\n".join(lines) + "\n"


def _cell(r: dict[str, Any]) -> str:
    if "sums_of_one_site" in r:
        sums = f"{r['sums_of_one_site']:,} of {r['of']:,} single-site sums, and "
        return f"{sums}{r['exact_rows']:,} rows in {r['runs']} runs"
    if not r["exact_rows"]:
        return f"0 rows in {r['runs']} runs"
    rows = f"{r['exact_rows_per_run']:g} row{'' if r['exact_rows_per_run'] == 1 else 's'} per run"
    runs = f"{r['runs_with_exact_rows'] / r['runs']:.0%} of {r['runs']} runs"
    return f"{rows}; {runs} and {r['share_of_sites']:.0%} of sites lost a row"


def main(*, json: bool = False, quick: bool = False, only: str = "", out: Path | None = None) -> int:
    """Measure and print; with `out`, also write a JSON document and a table."""
    found = measured(quick=quick, only=only, tell=lambda line: print(line, file=sys.stderr, flush=True))
    if out is not None:
        out.with_suffix(".json").write_text(text.dumps(found, indent=1) + "\n")
        out.with_suffix(".md").write_text(table(found))
    print(text.dumps(found) if json else f"{found['runs']} runs in {found['seconds']:.0f} s\n\n{table(found)}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only a few dozen small runs")
    parser.add_argument("--only", default="", help="only runs whose name contains this text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="path of the output files, without suffix")
    chosen = parser.parse_args()
    sys.exit(main(json=chosen.json, quick=chosen.quick, only=chosen.only, out=chosen.out))
