"""Rows of a site's own table that stand out, counted for its steward: rare levels, far rows, rows left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedclust.core.types import Floats, Units
from fedclust.questions.schema import Schema
from fedclust.site.site_data import SiteData
from fedclust.site.sources import select_rows

DEFAULT_FLOOR = 10  # if neither the policy nor the study names one
HALF = 0.5  # of the spread of a column, if the policy does not limit the share of one row
MAX_FAR_SHARE = 0.02  # of the rows of a table: in a small table a few rows always make up most of a spread
# By encoded column: its name in the study, and the level of each value.
LevelsByColumn = dict[str, tuple[str, dict[float, str]]]


@dataclass(frozen=True)
class RareLevel:
    """A value that fewer rows than the floor have."""

    column: str
    level: str
    rows: int


@dataclass(frozen=True)
class FarRows:
    """Rows, fewer than the floor, that make up most of the spread of a column."""

    column: str
    rows: int
    share: float


@dataclass(frozen=True)
class SmallClusters:
    """Clusters of the rehearsal that hold fewer of this site's rows than the floor, and those that hold one row."""

    clusters: int = 0
    small: int = 0
    lone: int = 0


@dataclass(frozen=True)
class TableRisks:
    """What stands out in a site's rows, in numbers that never leave the site."""

    floor: int
    rare_levels: tuple[RareLevel, ...] = ()
    far_rows: tuple[FarRows, ...] = ()
    left_out: int = 0
    clusters: SmallClusters = SmallClusters()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_table_risks(
    site_data: SiteData, missing: str, floor: int, max_share: float, labels: Units | None
) -> TableRisks:
    """Count what stands out in the rows that take part; `labels` are their clusters in a rehearsal."""
    columns, rule = site_data.source.columns, "drop" if missing == "refuse" else missing
    found = site_data.survey_for(missing)

    def blocks() -> Iterator[Floats]:
        return (np.asarray(select_rows(block, rule), np.float64) for block in site_data.source.blocks())

    levels = _declared_levels(site_data.schema or {}, columns)
    for name, low, high in zip(columns, found.lo, found.hi, strict=True):
        if name not in levels and low < high:  # a column of two values has levels, whether declared or not
            levels[name] = (name, {float(low): f"{low:g}", float(high): f"{high:g}"})
    counts, filled, means = _count_levels(blocks(), columns, levels)
    declared = _declared_levels(site_data.schema or {}, columns)
    measured = [i for i, name in enumerate(columns) if name not in declared and sum(counts[name].values()) < filled[i]]
    coded = {name: level for name, level in levels.items() if columns.index(name) not in measured}
    far = min(floor - 1, max(1, int(MAX_FAR_SHARE * found.rows)))
    return TableRisks(
        floor,
        tuple(_rare_levels(coded, counts, floor)),
        tuple(_far_rows(blocks(), columns, measured, means, far=far, share=max_share or HALF)),
        found.left_out,
        _small_clusters(labels, floor),
    )


def _declared_levels(schema: Schema, columns: Sequence[str]) -> LevelsByColumn:
    """Return the levels of categories, which are columns of zeros and ones, and of ordinal columns."""
    found: LevelsByColumn = {}
    for raw, column in schema.items():
        names = column.encoded_column_names(raw)
        if column.type == "category":
            found |= {name: (raw, {1.0: str(level)}) for name, level in zip(names, column.levels, strict=True)}
        elif column.type == "ordinal":
            found[raw] = (raw, dict(zip(column.ranks, map(str, column.levels), strict=True)))
    return {name: level for name, level in found.items() if name in columns}


def _count_levels(
    blocks: Iterator[Floats], columns: Sequence[str], levels: LevelsByColumn
) -> tuple[dict[str, dict[float, int]], Floats, Floats]:
    """Return how many rows have each level of each column, and the number and the mean of each column's values."""
    counts = {name: dict.fromkeys(levels[name][1] if name in levels else (), 0) for name in columns}
    sums, filled = np.zeros(len(columns)), np.zeros(len(columns))
    for block in blocks:
        for values, name in zip(block, columns, strict=True):
            for code in counts[name]:
                counts[name][code] += int((values == code).sum())
        sums += np.nansum(block, axis=1)
        filled += (~np.isnan(block)).sum(axis=1)
    return counts, filled, sums / np.maximum(filled, 1)


def _rare_levels(levels: LevelsByColumn, counts: dict[str, dict[float, int]], floor: int) -> Iterator[RareLevel]:
    for name, (raw, by_code) in levels.items():
        for code, level in by_code.items():
            if 0 < counts[name][code] < floor:
                yield RareLevel(raw, level, counts[name][code])


def _far_rows(
    blocks: Iterator[Floats], columns: Sequence[str], measured: list[int], means: Floats, *, far: int, share: float
) -> Iterator[FarRows]:
    """Yield the columns of which at most `far` rows make up more than a share of the sum of squares."""
    if not measured or far < 1:
        return
    most = np.zeros((len(measured), 0))
    total = np.zeros(len(measured))
    for block in blocks:
        squares = np.nan_to_num((block[measured] - means[measured, None]) ** 2)
        total += squares.sum(axis=1)
        most = np.sort(np.concatenate([most, squares], axis=1), axis=1)[:, ::-1][:, :far]
    for i, own in enumerate(np.cumsum(most, axis=1) / np.where(total, total, 1)[:, None]):
        enough = np.flatnonzero(own > share)
        if enough.size and total[i]:
            yield FarRows(columns[measured[i]], int(enough[0]) + 1, float(own[enough[0]]))


def _small_clusters(labels: Units | None, floor: int) -> SmallClusters:
    if labels is None:
        return SmallClusters()
    sizes = np.bincount(labels[labels >= 0])
    sizes = sizes[sizes > 0]
    return SmallClusters(len(sizes), int((sizes < floor).sum()), int((sizes == 1).sum()))
