"""Counts of missing values at the sites, asked for before a fit and reported with its result.

refuse   a missing value ends the run; the error names the column and the count
drop     each site leaves out rows with any missing value
partial  each site leaves out rows without any value; other rows count by the values they have (`rows_with_gaps`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol, each, handler, total
from fedclust.core.errors import DataError
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import HIDDEN_COUNT, Release, additive_counts, counts
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site
from fedclust.core.types import PartyId
from fedclust.questions.question_contracts import fits_gap_counts

MISSING_RULES = ("refuse", "drop", "partial")


@dataclass(frozen=True)
class GapCountsQuestion(GapsQuestion):
    """The study's rule for missing values."""

    missing: str

    def rows_with_gaps(self) -> str:
        return self.missing


@dataclass(frozen=True)
class RowCensus(Release):
    rows: int = counts(
        "the number of this site's rows that take part; the result shows it",
        hide_small=False,
    )
    left_out: int = counts(
        "the number of this site's rows that are left out because of missing values; the result shows it unless it is "
        "small"
    )
    gaps: int = counts("the number of missing values in this site's rows; the result shows it unless it is small")


@handler(releases=RowCensus, contract=fits_gap_counts)
def census(site: Site, ask: GapCountsQuestion) -> RowCensus:  # noqa: ARG001
    """Count this site's rows that take part, rows that are left out, and missing values."""
    return RowCensus(site.rows, site.left_out, int(site.gaps.sum()))


@dataclass(frozen=True)
class GapCounts(Release):
    gaps: Exact = additive_counts("how many values are missing in each column, over all sites")
    rows: Exact = additive_counts("the total number of rows, including rows that are left out")


@handler(releases=GapCounts, contract=fits_gap_counts)
def count_gaps(site: Site, ask: GapCountsQuestion) -> GapCounts:  # noqa: ARG001
    """Count the missing values of each column."""
    return GapCounts(Exact.from_counts(site.gaps), Exact.from_counts(site.rows + site.left_out))


def count_missing_values(columns: Sequence[str], missing: str) -> Protocol[list[int]]:
    """Return how many values each column lacks; a column without any value at any site is refused by name."""
    found = yield from total(count_gaps, GapCountsQuestion(missing))
    lacking, rows = found.gaps.to_integers(), found.rows.to_integers()[0]
    for name, count in zip(columns, lacking, strict=True):
        if count == rows:
            raise DataError(f"column '{name}' has no value at any site; remove it from `columns`")
    return list(lacking)


def missing_value_notes(columns: Sequence[str], missing: str) -> Protocol[list[str]]:
    """Notes on missing values; a column without any value at any site is refused by name."""
    if missing == "refuse":
        return []
    lacking = [0] * len(columns)
    if missing == "partial":  # otherwise the total would show how many rows are left out, however few
        lacking = yield from count_missing_values(columns, missing)
    left = yield from each(census, GapCountsQuestion(missing))
    return list(_gap_sentences(columns, missing, left, lacking))


def _gap_sentences(
    columns: Sequence[str], missing: str, left: Mapping[PartyId, RowCensus], lacking: Sequence[int]
) -> Iterator[str]:
    """Sentences on the rows left out and the values missing, site by site."""
    lost = [f"{a.left_out:,} of {a.rows + a.left_out:,} rows at {party}" for party, a in left.items() if a.left_out > 0]
    if lost:
        why = "with a missing value" if missing == "drop" else "without any value"
        yield f"Missing values: '{missing}' left out rows {why}: {_join_list(lost)}."
    if silent := [party for party, a in left.items() if HIDDEN_COUNT in (a.left_out, a.gaps)]:
        yield f"Missing values: of {_join_list(silent)}, small numbers of rows or values are not shown."
    if missing == "partial" and any(lacking):
        width, most = len(columns), max(range(len(columns)), key=lambda at: lacking[at])
        cells = [
            f"{a.gaps:,} of {(a.rows + max(a.left_out, 0)) * width:,} at {party}"
            for party, a in left.items()
            if a.gaps > 0
        ]
        shown = f"The missing values are {_join_list(cells)}, most" if cells else "Most missing values are"
        yield (
            f"Missing values: {count_noun(sum(a.rows for a in left.values()), 'row')} took part with "
            "partial distances, "
            "which skip missing values. "
            f"{shown} of them in column {columns[most]} ({lacking[most]:,})."
        )


def _join_list(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
