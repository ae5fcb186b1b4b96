"""What FCAC sends by default: means of at least a floor of rows, each row in one of them, once and for all.

A party joins its rows by Ward's cost, Wa Wb / (Wa + Wb) |a - b|^2, to at most 60 summaries and at most one for each
floor of rows; lighter ones, and those that are a row but for rounding, join their cheapest neighbour. Where one is left
and still a row, nothing is sent, and the rows wait. In a later round only rows that came since are summarised, also
where the table holds the earlier ones still: what was sent is never sent changed, so the difference of two rounds is
itself made of summaries of a floor of rows. Rows too few for one wait.

Damped, values beyond fences count as `fcac_fences` says: at a party beyond its own, in the cost, not in the means; at
the coordinator beyond those of all summaries it got, where it clusters them.

A new fit in the same run gets what was told before, seen through its view and joined where it asks for more rows behind
each, and summaries of what came since: nothing that the coordinator could not have made itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedclust.algorithms.shared.row_likeness import near_rows
from fedclust.algorithms.summary_clustering import neighbor_graph
from fedclust.algorithms.summary_clustering.outlier_fences import Fences
from fedclust.algorithms.summary_clustering.sent_summaries import Told
from fedclust.core.effects import Keep, Protocol, each, handler, report
from fedclust.core.errors import KeysRefused, OutOfBounds
from fedclust.core.release import HIDDEN, Release, counted, shown
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.kernels import grouping
from fedclust.questions import bounds, standardisation

MOST_HELD = 400  # points a party works on at a time
LEFT_HELD = 200  # what Ward makes of them when they are full
MOST_SENT = 60
WIDEST = 1023  # the power of two that any finite number lies below
ALONE = "No site had rows enough, or different enough, for a summary: one cluster, at the mean of all rows."
STILL_ALONE = "Still no site had rows enough, or different enough, for a summary: the cluster stays where it was."
LOSSY = "Not lossless: the coordinator saw summaries of rows, so the result is not that of the pooled rows."


@dataclass(frozen=True)
class Batch:
    """Summarise the rows at hand that were not told yet; `fresh` asks for what was told in this run as well."""

    view: View
    floor: int
    fresh: bool
    damped: bool


@dataclass(frozen=True)
class Summaries(Release):
    places: Floats = shown("means of at least a floor of rows each; no row is in two of them", kind="points")
    rows: Ints = counted("how many rows each mean stands for")
    waiting: bool = shown("whether rows wait because they were too few, or too much alike, for a summary")
    anew: bool = shown("whether this site remembers no earlier round")


@handler(releases=Summaries)
def summaries(site: Site, ask: Batch) -> Keep[Summaries]:
    """Summaries of the rows that came since the last round."""
    view, run = ask.view, _run_of(site)
    told, here = Told.recalled(site.memory, len(site.columns)), _rows_of(site, view)
    if ask.fresh and (not told.of_run(run) or told.lacks_of(here)):
        told = Told.nothing(len(site.columns))
    new = told.new_among(here)
    pool = np.concatenate([told.waiting, new])
    seen = view.of(pool.T).T
    sent = Held.none(len(site.columns))
    if len(pool) >= ask.floor:
        looked_at = Fences.around(seen).seen(seen) if ask.damped else seen
        sent = sent.taking(seen, looked_at).summed_up(ask.floor, np.concatenate([seen, view.of(here.T).T]))
    before = Held(told.seen(view), told.seen(view), told.weights, np.ones(len(told.weights)))
    told = told.knowing(new).having_sent(sent.places, sent.weights, view)
    told = replace(told, run=np.frombuffer(run.encode(), np.uint8), waiting=pool[: 0 if len(sent.places) else None])
    answer = before.above(ask.floor).and_also(sent) if ask.fresh else sent
    anew = not Told.known(site.memory)
    release = Summaries(answer.places, answer.weights.astype(np.int64), bool(len(told.waiting)), anew)
    return Keep(release, {**site.memory, **told.remembered()})


def _rows_of(site: Site, view: View) -> Floats:
    """A party's rows in original units, if they keep within the view's bounds."""
    if not view.admits(site.largest):
        raise OutOfBounds(f"a column of {site.party} exceeds its bound; scale the columns or declare wider bounds")
    plain = View(np.full(len(site.columns), WIDEST, np.int32), missing=view.missing)
    blocks = [np.asarray(block.T, np.float64) for block in site.blocks(plain)]
    return np.concatenate([np.empty((0, len(site.columns))), *blocks])


def _run_of(site: Site) -> str:
    """The run's name, where the site knows it."""
    try:
        return site.vault.run
    except KeysRefused:
        return ""


@dataclass(frozen=True)
class Held:
    """Points that stand for rows: their means, those of the rows as they are looked at, and the scatter within each."""

    places: Floats
    seen: Floats
    weights: Floats
    scatter: Floats

    @classmethod
    def none(cls, columns: int) -> Held:
        nowhere = np.empty((0, columns))
        return cls(nowhere, nowhere, np.empty(0), np.empty(0))

    def taking(self, rows: Floats, seen: Floats) -> Held:
        """With more rows, joined by Ward as often as there is no room for all."""
        held, at = self, 0
        while at < len(rows):
            if len(held.places) >= MOST_HELD:
                held = held.joined(LEFT_HELD)
            end = min(len(rows), at + MOST_HELD - len(held.places))
            held = held.and_also(Held(rows[at:end], seen[at:end], np.ones(end - at), np.zeros(end - at)))
            at = end
        return held

    def joined(self, target: int, floor: float = 0.0) -> Held:
        width = self.seen.shape[1]
        both = np.concatenate([self.seen, self.places], axis=1)
        found, *rest = grouping.ward(both, self.weights, self.scatter, target, floor, blur=floor > 0, along=width)
        return Held(np.ascontiguousarray(found[:, width:]), np.ascontiguousarray(found[:, :width]), *rest)

    def above(self, floor: int) -> Held:
        """With at least a floor of rows behind each point: lighter ones join others, or go."""
        found = self.joined(len(self.places), floor)
        enough = found.weights >= floor
        return Held(*(own[enough] for own in (found.places, found.seen, found.weights, found.scatter)))

    def and_also(self, other: Held) -> Held:
        return Held(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.seen, other.seen]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.scatter, other.scatter]),
        )

    def summed_up(self, floor: int, rows: Floats) -> Held:
        """At most MOST_SENT points of at least a floor of rows each, none of them a row."""
        found = self.joined(min(MOST_SENT, int(self.weights.sum()) // floor), floor)
        while (same := near_rows(found.places, rows)).any():
            if len(found.places) == 1:
                return Held.none(found.places.shape[1])
            # A point that is a row joins another, as one whose rows are all the same would.
            found = replace(found, scatter=np.where(same, 0.0, np.maximum(found.scatter, 1e-300)))
            found = found.joined(len(found.places), floor)
        return found


@dataclass(frozen=True)
class Round:
    """All summaries so far, their clusters, and what to say."""

    places: Floats
    rows: Ints
    found: neighbor_graph.Found
    sent: int
    notes: tuple[str, ...]
    anew: tuple[PartyId, ...] = ()  # sites that remember no earlier round
    fences: Fences | None = None


def fit(
    view: View,
    places: Floats,
    rows: Ints,
    *,
    instead: tuple[Floats, Ints] | None = None,
    fresh: bool,
    damped: bool,
    floor: int,
    most: int,
    seed: int,
) -> Protocol[Round]:
    """One round: the parties summarise, the coordinator clusters all summaries it ever got.

    `instead` stands in while there is none; it is asked for once, for exact totals of two rounds differ by new rows.
    """
    answers = yield from each(summaries, Batch(view, floor, fresh, damped))
    own = [answers[party] for party in sorted(answers)]
    sent = sum(len(one.places) for one in own)
    places = np.concatenate([places, *(one.places for one in own)])
    rows = np.concatenate([rows, *(_at_least(one.rows, floor) for one in own)])
    told = [LOSSY]
    if quiet := sum(one.waiting for one in own):
        told.append(f"{quiet} sites hold rows too few, or too much alike, for a summary; they wait for the next round.")
    if len(places) > most:
        told.append(f"The coordinator's memory of {most} summaries is full: {len(places)} became {most // 2}.")
        places, rows = _fewer(places, rows, most // 2, damped=damped)
    if not len(places):
        places, rows = (yield from _mean(view)) if instead is None else instead
        told.append(ALONE if instead is None else STILL_ALONE)
    order = np.lexsort((rows, *places.T[::-1]))
    places, rows = np.ascontiguousarray(places[order]), rows[order]
    fences = Fences.around(places, rows) if damped else None
    found = neighbor_graph.clusters(places if fences is None else fences.seen(places), rows, seed)
    yield from report(round=1, shift=0.0, nodes=len(places), clusters=found.count)
    anew = tuple(party for party, one in answers.items() if one.anew)
    return Round(places, rows, found, sent, tuple(told), anew, fences)


def _fewer(places: Floats, rows: Ints, count: int, *, damped: bool) -> tuple[Floats, Ints]:
    """Summaries joined by Ward until so many are left."""
    seen = Fences.around(places, rows).seen(places) if damped else places
    found = Held(places, seen, rows.astype(np.float64), np.zeros(len(rows))).joined(count)
    return found.places, found.weights.astype(np.int64)


def _at_least(rows: Ints, floor: int) -> Ints:
    """Counts, those that a gate hid taken as the floor."""
    return np.where(rows == HIDDEN, floor, rows).astype(np.int64)


def _mean(view: View) -> Protocol[tuple[Floats, Ints]]:
    """The mean of all rows, from exact totals, where there is nothing else to show."""
    seen = yield from bounds.agree(len(view.exponents), view.missing)
    if view.origin is not None and view.spread is not None:
        seen = standardisation.scaled(seen, view.origin, view.spread)
    found = yield from standardisation.columns(seen)
    return found.mean[None, :], found.counts[:1]
