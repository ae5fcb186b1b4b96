"""One round of summary clustering: sites send means of at least a floor of rows, the coordinator clusters all of them.

A site joins its rows by Ward's cost to at most 60 summaries and at most one per floor of rows; lighter ones, and those
that equal a row apart from rounding, are joined to their cheapest neighbour. If one is left that still equals a row,
the site sends nothing, and its rows wait. In a later round a site summarises only rows that are new, even if its table
still holds the earlier ones. A summary that was sent is never sent again in another form, so the difference of two
rounds consists of summaries of a floor of rows. Rows that are too few for a summary wait.

With damping, outliers count by their logarithm (`outlier_fences`): at a site those beyond its own fences, in the cost
and not in the means; at the coordinator those beyond the fences of all its summaries, where it clusters them.

A second fit in the same run gets what was sent before, in its own view and joined where it asks for more rows behind
each, and summaries of the rows that came since: nothing that the coordinator could not have computed itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedclust.algorithms.method_contracts import fits_summaries
from fedclust.algorithms.summary_clustering import neighbor_graph
from fedclust.algorithms.summary_clustering.outlier_fences import OutlierFences
from fedclust.algorithms.summary_clustering.sent_summaries import SentSummaries
from fedclust.algorithms.summary_clustering.weighted_points import WeightedPoints
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Keep, Protocol, each, handler, report
from fedclust.core.errors import KeysRefused, OutOfBounds
from fedclust.core.question_types import FlooredQuestion, UnitlessQuestion
from fedclust.core.release import FLOOR_FROM_QUESTION, HIDDEN_COUNT, Release, counts, facts, points
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.questions import bounds, standardisation

ANY_EXPONENT = 1023  # the power of two that any finite number lies below
SUMMARIES_NOTE = (
    "Not lossless: the coordinator clustered summaries of rows, so the result differs from that of the pooled rows."
)
ONLY_THE_MEAN = "No site had enough different rows for a summary. The result is one cluster, at the mean of all rows."
STILL_ONLY_THE_MEAN = "Still no site has enough different rows for a summary. The only cluster stays as it was."


@dataclass(frozen=True)
class Batch(UnitlessQuestion, FlooredQuestion):
    """Summarise the rows that were not summarised yet; `fresh` also asks for what was sent earlier in this run."""

    view: View
    floor: int
    fresh: bool
    damped: bool

    def rows_per_point(self) -> int:
        return self.floor


@dataclass(frozen=True)
class Summaries(Release):
    places: Floats = points(
        "means of groups of rows, each of at least the required size; no row is in two groups",
        floor=FLOOR_FROM_QUESTION,
    )
    rows: Ints = counts("how many rows each mean stands for")
    waiting: bool = facts("whether rows are held back because they were too few, or too similar, for a summary")
    has_no_memory: bool = facts("whether this site has no memory of earlier rounds")


# Within a run, and in its later rounds, a site remembers what it sent; in another run rows are split otherwise.
@handler(releases=Summaries, methods=("summary-clustering",), one_run=True, contract=fits_summaries)
def summarise_rows(site: Site, ask: Batch) -> Keep[Summaries]:
    """Summaries of the rows that came since the last round."""
    view, run, columns = ask.view, _run_of(site), len(site.columns)
    memory, rows = SentSummaries.from_memory(site.memory, columns), _rows_of(site, view)
    if ask.fresh and (not memory.belongs_to(run) or memory.has_rows_missing_in(rows)):
        memory = SentSummaries.empty(columns)
    new = memory.new_rows(rows)
    pool = np.concatenate([memory.waiting, new])
    places = view.transform(pool.T).T
    summaries = WeightedPoints.empty(columns)
    if len(pool) >= ask.floor:
        compared = OutlierFences.of_points(places).damp(places) if ask.damped else places
        every_row = np.concatenate([places, view.transform(rows.T).T])
        summaries = summaries.add_rows(places, compared).summarise(ask.floor, every_row)
    earlier = memory.places_in(view)
    before = WeightedPoints(earlier, earlier, memory.weights, np.ones(len(memory.weights)))
    memory = memory.with_known_rows(new).with_sent(summaries.places, summaries.weights, view)
    waiting = pool[: 0 if len(summaries.places) else None]
    memory = replace(memory, run=np.frombuffer(run.encode(), np.uint8), waiting=waiting)
    answer = before.with_floor(ask.floor).append(summaries) if ask.fresh else summaries
    has_no_memory = not SentSummaries.is_in(site.memory)
    release = Summaries(answer.places, answer.weights.astype(np.int64), bool(len(waiting)), has_no_memory)
    return Keep(release, {**site.memory, **memory.to_memory()})


def _rows_of(site: Site, view: View) -> Floats:
    """A site's rows in original units, if they stay within the view's bounds."""
    if not view.admits(site.largest):
        raise OutOfBounds(f"a column of {site.party} exceeds its bound; scale the columns or declare wider bounds")
    plain = View(np.full(len(site.columns), ANY_EXPONENT, np.int32), missing=view.missing)
    blocks = [np.asarray(block.T, np.float64) for block in site.blocks(plain)]
    return np.concatenate([np.empty((0, len(site.columns))), *blocks])


def _run_of(site: Site) -> str:
    """The run's name, where the site knows it."""
    try:
        return site.vault.run
    except KeysRefused:
        return ""


@dataclass(frozen=True)
class Round:
    """All summaries so far, their clusters, and what users should know."""

    places: Floats
    rows: Ints
    clusters: neighbor_graph.Clusters
    sent: int
    notes: tuple[str, ...]
    restarted_sites: tuple[PartyId, ...] = ()  # they remember no earlier round
    fences: OutlierFences | None = None

    @property
    def compared_places(self) -> Floats:
        """The places as the coordinator compared them: with outliers damped, if at all."""
        return self.places if self.fences is None else self.fences.damp(self.places)


def fit(
    view: View,
    places: Floats,
    rows: Ints,
    *,
    stand_in: tuple[Floats, Ints] | None = None,
    fresh: bool,
    damped: bool,
    floor: int,
    max_nodes: int,
    seed: int,
) -> Protocol[Round]:
    """One round: the sites summarise new rows, the coordinator clusters all summaries it ever got.

    While there is no summary, `stand_in` takes their place, or the mean of all rows. The mean is asked for only once,
    because the exact totals of two rounds differ by the new rows.
    """
    answers = yield from each(summarise_rows, Batch(view, floor, fresh, damped))
    own = [answers[party] for party in sorted(answers)]
    sent = sum(len(one.places) for one in own)
    places = np.concatenate([places, *(one.places for one in own)])
    rows = np.concatenate([rows, *(_replace_hidden(one.rows, floor) for one in own)])
    notes = [SUMMARIES_NOTE, *_waiting_note(own)]
    if len(places) > max_nodes:
        notes.append(
            f"The coordinator's memory of {max_nodes} summaries is full. It merged {len(places)} summaries into "
            f"{max_nodes // 2}."
        )
        places, rows = _join_summaries(places, rows, max_nodes // 2, damped=damped)
    if not len(places):
        places, rows = (yield from _mean_of_all_rows(view)) if stand_in is None else stand_in
        notes.append(ONLY_THE_MEAN if stand_in is None else STILL_ONLY_THE_MEAN)
    order = np.lexsort((rows, *places.T[::-1]))
    places, rows = np.ascontiguousarray(places[order]), rows[order]
    fences = OutlierFences.of_points(places, rows) if damped else None
    clusters = neighbor_graph.find_clusters(places if fences is None else fences.damp(places), rows, seed)
    yield from report(round=1, shift=0.0, nodes=len(places), clusters=clusters.count)
    restarted = tuple(party for party, one in answers.items() if one.has_no_memory)
    return Round(places, rows, clusters, sent, tuple(notes), restarted, fences)


def _waiting_note(answers: Sequence[Summaries]) -> list[str]:
    """How many sites hold rows back."""
    count = sum(answer.waiting for answer in answers)
    hold = count_noun(count, "site holds", "sites hold")
    return [f"{hold} back rows that are too few, or too similar, for a summary. They wait for the next round."] * (
        count > 0
    )


def _join_summaries(places: Floats, rows: Ints, count: int, *, damped: bool) -> tuple[Floats, Ints]:
    """Summaries joined by Ward until so many are left."""
    compared = OutlierFences.of_points(places, rows).damp(places) if damped else places
    found = WeightedPoints(places, compared, rows.astype(np.float64), np.zeros(len(rows))).join_to(count)
    return found.places, found.weights.astype(np.int64)


def _replace_hidden(rows: Ints, floor: int) -> Ints:
    """Counts of rows, with the floor for those that a gate hid."""
    return np.where(rows == HIDDEN_COUNT, floor, rows).astype(np.int64)


def _mean_of_all_rows(view: View) -> Protocol[tuple[Floats, Ints]]:
    """The mean of all rows, from exact totals."""
    agreed = yield from bounds.agree_on_bounds(len(view.exponents), view.missing)
    if view.origin is not None and view.spread is not None:
        agreed = standardisation.scale_view(agreed, view.origin, view.spread)
    found = yield from standardisation.column_statistics(agreed)
    return found.mean[None, :], found.counts[:1]
