"""What FCAC sends by default: means of at least a floor of rows, each row in one of them, once and for all.

A party joins its rows by Ward's cost, Wa Wb / (Wa + Wb) |a - b|^2, to at most 60 summaries and at most one for each
floor of rows; lighter ones, and those whose rows are all the same, join their cheapest neighbour. A summary that is
still equal to a row is not sent. In a later round only rows that came since are summarised: what was sent is never
sent changed, so the difference of two rounds is itself a summary of a floor of rows. Rows too few for one wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedclust.algorithms import fcac_graph
from fedclust.core.protocol import Keep, Protocol, each, handler, report
from fedclust.core.release import HIDDEN, Release, counted, shown
from fedclust.core.site import Site, View
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import groups
from fedclust.preprocessing import bounds, standardise

MOST_HELD = 400  # points a party works on at a time
LEFT_HELD = 200  # what Ward makes of them when they are full
MOST_SENT = 60
WAITING = "summaries.waiting"
ALONE = "No site had rows enough, or different enough, for a summary: one cluster, at the mean of all rows."
LOSSY = "Not lossless: the coordinator saw summaries of rows, so the result is not that of the pooled rows."


@dataclass(frozen=True)
class Batch:
    """Summarise the rows at hand, none below the floor; `fresh` forgets rows that waited from before."""

    view: View
    floor: int
    fresh: bool


@dataclass(frozen=True)
class Summaries(Release):
    places: Floats = shown("means of at least a floor of rows each; no row is in two of them", kind="points")
    rows: Ints = counted("how many rows each mean stands for")
    waiting: bool = shown("whether rows wait because they were too few for a summary")


@handler(releases=Summaries)
def summaries(site: Site, ask: Batch) -> Keep[Summaries]:
    """Summaries of the rows that came since the last round."""
    waited = site.memory.get(WAITING) if not ask.fresh else None
    held = Held.none(len(site.columns))
    parts: list[Array] = [] if waited is None else [waited]
    parts += [block.T for block in site.blocks(ask.view)]
    for rows in parts:
        held = held.taking(np.asarray(rows, np.float64))
    count = int(held.weights.sum())
    if count < ask.floor:
        sent = Held.none(len(site.columns))
        waiting = np.concatenate(parts) if parts else held.places
    else:
        sent = held.summed_up(ask.floor, parts)
        waiting = held.places[:0]
    told = Summaries(sent.places, sent.weights.astype(np.int64), bool(len(waiting)))
    return Keep(told, {**site.memory, WAITING: np.ascontiguousarray(waiting, np.float64)})


@dataclass(frozen=True)
class Held:
    """Points that stand for rows, with the scatter within each."""

    places: Floats
    weights: Floats
    scatter: Floats

    @classmethod
    def none(cls, columns: int) -> Held:
        return cls(np.empty((0, columns)), np.empty(0), np.empty(0))

    def taking(self, rows: Floats) -> Held:
        """With more rows, joined by Ward as often as there is no room for all."""
        held = self
        while len(rows):
            if len(held.places) >= MOST_HELD:
                held = held.joined(LEFT_HELD)
            some, rows = np.split(rows, [MOST_HELD - len(held.places)])
            held = Held(
                np.concatenate([held.places, some]),
                np.concatenate([held.weights, np.ones(len(some))]),
                np.concatenate([held.scatter, np.zeros(len(some))]),
            )
        return held

    def joined(self, target: int, floor: float = 0.0) -> Held:
        return Held(*groups.ward(self.places, self.weights, self.scatter, target, floor, blur=floor > 0))

    def summed_up(self, floor: int, parts: list[Array]) -> Held:
        """At most MOST_SENT points of at least a floor of rows each, none of them equal to a row."""
        found = self.joined(min(MOST_SENT, int(self.weights.sum()) // floor), floor)
        while (same := _rows_among(found.places, parts)).any():
            if len(found.places) == 1:
                return Held.none(found.places.shape[1])
            # A point that is a row joins another, as one whose rows are all the same would.
            found = replace(found, scatter=np.where(same, 0.0, np.maximum(found.scatter, 1e-300)))
            found = found.joined(len(found.places), floor)
        return found


def _rows_among(points: Floats, parts: list[Array]) -> Array:
    """Which points are equal to a row."""
    # Adding 0 makes both zeros one.
    rows = {row.tobytes() for part in parts for row in np.ascontiguousarray(part, np.float64) + 0.0}
    return np.array([point.tobytes() in rows for point in points + 0.0], bool)


@dataclass(frozen=True)
class Round:
    """All summaries so far, their clusters, and what to say."""

    places: Floats
    rows: Ints
    found: fcac_graph.Found
    sent: int
    notes: tuple[str, ...]


def fit(view: View, places: Floats, rows: Ints, *, fresh: bool, floor: int, most: int, seed: int) -> Protocol[Round]:
    """One round: the parties summarise, the coordinator clusters all summaries it ever got."""
    answers = yield from each(summaries, Batch(view, floor, fresh))
    own = [answers[party] for party in sorted(answers)]
    sent = sum(len(one.places) for one in own)
    places = np.concatenate([places, *(one.places for one in own)])
    rows = np.concatenate([rows, *(_at_least(one.rows, floor) for one in own)])
    told = [LOSSY]
    if quiet := sum(one.waiting for one in own):
        told.append(f"{quiet} sites hold rows too few for a summary; they wait for the next round.")
    if len(places) > most:
        told.append(f"The coordinator's memory of {most} summaries is full: {len(places)} became {most // 2}.")
        kept = groups.ward(places, rows, np.zeros(len(rows)), most // 2)
        places, rows = kept[0], kept[1].astype(np.int64)
    if not len(places):
        places, rows = yield from _mean(view)
        told.append(ALONE)
    order = np.lexsort((rows, *places.T[::-1]))
    places, rows = np.ascontiguousarray(places[order]), rows[order]
    found = fcac_graph.clusters(places, rows, seed)
    yield from report(round=1, shift=0.0, nodes=len(places), clusters=found.count)
    return Round(places, rows, found, sent, tuple(told))


def _at_least(rows: Ints, floor: int) -> Ints:
    """Counts, those that a gate hid taken as the floor."""
    return np.where(rows == HIDDEN, floor, rows).astype(np.int64)


def _mean(view: View) -> Protocol[tuple[Floats, Ints]]:
    """The mean of all rows, from exact totals, where there is nothing else to show."""
    seen = yield from bounds.agree(len(view.exponents), view.missing)
    if view.origin is not None and view.spread is not None:
        seen = standardise.scaled(seen, view.origin, view.spread)
    found = yield from standardise.columns(seen)
    return found.mean[None, :], found.counts[:1]
