"""Rows of a site's own table that stand out, counted for its steward: rare levels, far rows, rows left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedclust.core.types import Bools, Floats, Units
from fedclust.questions.schema import Schema
from fedclust.site.site_data import SiteData
from fedclust.site.sources import select_rows

DEFAULT_FLOOR = 10  # if neither the policy nor the study names one
HALF = 0.5  # of the spread of a column, if the policy does not limit the share of one row
MAX_FAR_SHARE = 0.02  # of the rows of a table: in a small table a few rows always make up most of a spread
Levels = dict[str, tuple[str, dict[float, str]]]  # by encoded column: its name in the study, and the level of each code


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

    def blocks() -> Iterator[Floats]:
        return (np.asarray(select_rows(block, rule), np.float64) for block in site_data.source.blocks())

    levels = _levels_by_column(site_data.schema or {}, columns)
    counts, indicator, means = _count_levels(blocks(), len(columns), levels)
    far = min(floor - 1, max(1, int(MAX_FAR_SHARE * site_data.survey_for(missing).rows)))
    measured = [i for i, column in enumerate(columns) if not indicator[i] and column not in levels]
    return TableRisks(
        floor,
        tuple(_rare_levels(columns, levels, counts, indicator, floor)),
        tuple(_far_rows(blocks(), columns, measured, means, far=far, share=max_share or HALF)),
        site_data.survey_for(missing).left_out,
        _small_clusters(labels, floor),
    )


def _levels_by_column(schema: Schema, columns: Sequence[str]) -> Levels:
    """Return, for each encoded column with declared levels, its name in the study and the level of each code."""
    found: Levels = {}
    for raw, column in schema.items():
        names = column.encoded_column_names(raw)
        if column.type == "category":
            found |= {name: (raw, {1.0: str(level)}) for name, level in zip(names, column.levels, strict=True)}
        elif column.type == "ordinal":
            found[raw] = (raw, dict(zip(column.ranks, map(str, column.levels), strict=True)))
    return {name: level for name, level in found.items() if name in columns}


def _count_levels(blocks: Iterator[Floats], width: int, levels: Levels) -> tuple[list[dict[float, int]], Bools, Floats]:
    """Return how many rows have each code, which columns hold only 0 and 1, and the mean of each column."""
    codes = sorted({0.0, 1.0} | {code for _, by_code in levels.values() for code in by_code})
    counts = np.zeros((len(codes), width), np.int64)
    sums, filled = np.zeros(width), np.zeros(width)
    for block in blocks:
        counts += np.array([(block == code).sum(axis=1) for code in codes])
        sums += np.nansum(block, axis=1)
        filled += (~np.isnan(block)).sum(axis=1)
    two = counts[[codes.index(0.0), codes.index(1.0)]]
    indicator = (two.sum(axis=0) == filled) & (two > 0).all(axis=0)
    by_column = [dict(zip(codes, map(int, own), strict=True)) for own in counts.T]
    return by_column, indicator, sums / np.maximum(filled, 1)


def _rare_levels(
    columns: Sequence[str],
    levels: Levels,
    counts: list[dict[float, int]],
    indicator: Bools,
    floor: int,
) -> Iterator[RareLevel]:
    for i, own in enumerate(counts):
        name = columns[i]
        raw, by_code = levels.get(name, (name, {0.0: "0", 1.0: "1"} if indicator[i] else {}))
        for code, level in by_code.items():
            if 0 < own[code] < floor:
                yield RareLevel(raw, level, own[code])


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
