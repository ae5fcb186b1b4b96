"""Gaps in rows that nobody pools: who has how many, told before the result and in it.

refuse   rows with gaps end the run, with column and count
drop     a row with any gap is left out at its site
partial  a row without any value is left out; the others count by the values they have (`algorithms.partial`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedclust.core.effects import Protocol, each, handler, total
from fedclust.core.errors import DataError
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import Release, additive_counts, counts
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import PartyId

MISSING_RULES = ("refuse", "drop", "partial")


@dataclass(frozen=True)
class GapCountsQuestion(GapsQuestion):
    """What the study does about gaps."""

    missing: str

    def rows_with_gaps(self) -> str:
        return self.missing


@dataclass(frozen=True)
class RowCensus(Release):
    rows: int = counts(
        "the number of the site's rows that take part, reported with the result",
        hide_small=False,
    )
    left_out: int = counts(
        "the number of the site's rows left out because of missing values, reported with the result", hide_small=False
    )
    gaps: int = counts("the number of missing values in the site's rows, reported with the result", hide_small=False)


@handler(releases=RowCensus)
def census(site: Site, ask: GapCountsQuestion) -> RowCensus:  # noqa: ARG001
    """How many rows of this party take part, how many do not, and how many values lack."""
    return RowCensus(site.rows, site.left_out, int(site.gaps.sum()))


@dataclass(frozen=True)
class GapCounts(Release):
    gaps: Exact = additive_counts("how many values are missing in each column, over all sites")
    rows: Exact = additive_counts("the total number of rows, including rows that are left out")


@handler(releases=GapCounts)
def count_gaps(site: Site, ask: GapCountsQuestion) -> GapCounts:  # noqa: ARG001
    """How many values each column lacks."""
    return GapCounts(Exact.from_counts(site.gaps), Exact.from_counts(site.rows + site.left_out))


def missing_value_notes(columns: Sequence[str], missing: str) -> Protocol[list[str]]:
    """What to say of the gaps; a column that has no value at any site is refused by name."""
    if missing == "refuse":
        return []
    found = yield from total(count_gaps, GapCountsQuestion(missing))
    lacking, rows = found.gaps.to_integers(), found.rows.to_integers()[0]
    for name, count in zip(columns, lacking, strict=True):
        if count == rows:
            raise DataError(f"column '{name}' has no value at any site; leave it out of the columns")
    left = yield from each(census, GapCountsQuestion(missing))
    return list(_gap_sentences(columns, missing, left, lacking))


def _gap_sentences(
    columns: Sequence[str], missing: str, left: Mapping[PartyId, RowCensus], lacking: Sequence[int]
) -> Iterator[str]:
    """What was left out and what lacks, site by site."""
    lost = [f"{a.left_out:,} of {a.rows + a.left_out:,} rows at {party}" for party, a in left.items() if a.left_out]
    if lost:
        why = "with a missing value" if missing == "drop" else "without any value"
        yield f"Missing values: {missing} left out rows {why}, {_join_list(lost)}."
    if missing == "partial" and any(lacking):
        width, most = len(columns), max(range(len(columns)), key=lambda at: lacking[at])
        cells = [f"{a.gaps:,} of {(a.rows + a.left_out) * width:,} at {party}" for party, a in left.items() if a.gaps]
        yield (
            f"Missing values: {sum(a.rows for a in left.values()):,} rows took part by partial distances, lacking "
            f"{_join_list(cells)}, most in column {columns[most]} ({lacking[most]:,})."
        )


def _join_list(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
