"""Attack a5: in a cell in which one row alone differs in a column, products with that column show the row.

If all rows of a cell but one have the same value in a column, then the scatter of that column with any other one is the
row's deviation in the other column times the square root of the first column's scatter. This holds for flags that one
row has, for rare counts, and for a column of the whole table. The attack takes every column for one with a single odd
row, so most of its points are no rows; it is scored with the rows at hand, as an upper bound for whoever knows which
points are right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedclust.core.types import Array, Bools, Floats, Ints
from fedclust.privacy.attacks.cell_differences import RowIndex
from fedclust.privacy.attacks.transcript import Observation, Transcript

IDENTITY_TOLERANCE = 1e-7
MATCH_TOLERANCE = 1e-6  # of a coordinate's largest value: products and roots cost digits
MIN_COORDINATES = 2  # of a point: one number may equal that of a row by chance
MIN_VARIANCE = 1e-12  # of a column, of its squared range in all rows


@dataclass(frozen=True)
class CellProducts:
    """The moments of a cell's rows in the coordinates t = maps (1, x): their number, sums (p,) and products (p, p).

    `maps` is (p, 1 + F). `counted` are columns of two values of which the cell's number of upper values is known, with
    that number in `counts`.
    """

    rows: float
    sums: Floats
    products: Floats
    maps: Floats
    counted: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Floats = field(default_factory=lambda: np.zeros(0))


def products_of_tables(transcript: Transcript) -> Iterator[CellProducts]:
    """The products of columns over all rows, from questions that ask for each two columns' deviations."""
    for seen in transcript:
        if seen.has_fields("products") and "mean" in seen.asked and seen.asked.get("directions") is None:
            found = _products_of_table(seen)
            if found is not None:
                yield found


def _products_of_table(seen: Observation) -> CellProducts | None:
    """The products of one question; its deviations are from means in the view's units, or divided by `sd` as well."""
    mean = np.asarray(seen.asked["mean"], np.float64)
    products = np.zeros((len(mean), len(mean)))
    i, j = np.triu_indices(len(mean))
    triangle = seen.floats_of("products")
    if triangle.shape != i.shape or not len(mean):
        return None
    products[i, j] = products[j, i] = triangle
    columns = np.asarray(seen.asked.get("columns", np.arange(len(mean))))
    origin, spread = seen.asked.get("origin"), seen.asked.get("spread")
    scale = 1.0 if spread is None else np.asarray(spread)[columns]
    moved = mean * scale + (0.0 if origin is None else np.asarray(origin)[columns])
    scale = scale * np.asarray(seen.asked.get("sd", 1.0))
    rows = float(seen.floats_of("rows").sum()) if seen.has_fields("rows") else 0.0
    width = int(columns.max()) + 1 if origin is None else len(np.asarray(origin))
    maps = np.zeros((len(mean), 1 + width))
    maps[np.arange(len(mean)), 1 + columns] = 1 / (scale * np.ones(len(mean)))
    maps[:, 0] = -moved / scale
    sums = seen.floats_of("sums") if seen.has_fields("sums") else np.zeros(len(mean))
    return CellProducts(rows, sums if sums.shape == mean.shape else np.zeros(len(mean)), products, maps)


def rows_by_products(cells: Iterable[CellProducts], rows: Array) -> Bools:
    """Return which rows follow from the products of cells in which they are the only odd ones in a column.

    >>> rows = np.array([[0.0, 3.0, 7.0], [0.0, 5.0, 1.0], [1.0, 4.0, 2.0]])
    >>> whole = CellProducts(3.0, rows.sum(axis=0), rows.T @ rows, np.eye(4)[1:])
    >>> rows_by_products([whole], rows).tolist()
    [False, False, True]
    """
    rows = np.asarray(rows, np.float64)
    found = np.zeros(len(rows), np.bool_)
    if not rows.size:
        return found
    high, low = rows.max(axis=0), rows.min(axis=0)
    scale = np.where(high > low, high - low, 1.0)
    whole = np.concatenate([np.ones((len(rows), 1)), (rows - low) / scale], axis=1)
    identities = _null_space(whole)
    to_scaled = _unscale(low, scale)
    points: dict[bytes, list[Floats]] = {}
    maps_of: dict[bytes, Floats] = {}
    for cell in cells:
        if cell.maps.shape[1] > len(to_scaled) or len(cell.maps) < MIN_COORDINATES:
            continue
        padded = np.zeros((len(cell.maps), len(to_scaled)))
        padded[:, : cell.maps.shape[1]] = cell.maps
        maps = padded @ to_scaled
        key = maps.tobytes()
        maps_of[key] = maps
        points.setdefault(key, []).extend(_points_of_cell(cell, maps, identities, len(rows)))
    for key, own in points.items():
        index = RowIndex(whole @ maps_of[key].T, tolerance=MATCH_TOLERANCE)
        index.mark(np.array(own))
        found |= index.found
    return found


def _unscale(low: Floats, scale: Floats) -> Floats:
    """The matrix (1 + F, 1 + F) that turns (1, scaled x) into (1, x)."""
    out = np.diag(np.append(1.0, scale))
    out[1:, 0] = low
    return out


def _null_space(whole: Floats) -> Floats:
    """What is 0 for every row, such as the levels of a category less 1: a study's schema says so."""
    _, values, right = np.linalg.svd(whole.T @ whole)
    return np.asarray(right[values < IDENTITY_TOLERANCE**1.5 * values.max()], np.float64)


def _points_of_cell(cell: CellProducts, maps: Floats, identities: Floats, all_rows: int) -> Sequence[Floats]:
    """The points that would be rows if one row alone differed in a column of the cell, one column after the other."""
    n = cell.rows if cell.rows > 0 else float(all_rows)
    if n < 2:
        return [cell.sums] if n == 1 else []
    size = maps.shape[1]
    at = np.arange(size)
    zero, one = cell.counted[cell.counts == 0] + 1, cell.counted[cell.counts == n] + 1
    constant = np.concatenate([(at == zero[:, None]) * 1.0, (at == one[:, None]) * 1.0 - (at == 0)])
    known = np.concatenate([identities, constant, np.eye(size)[:1]])
    span = np.concatenate([maps, known])
    solved, *_ = np.linalg.lstsq(span.T, np.eye(size), rcond=IDENTITY_TOLERANCE)
    is_known = np.abs(span.T @ solved - np.eye(size)).max(axis=0) < IDENTITY_TOLERANCE
    middle = cell.sums / n
    scatter = cell.products - n * np.outer(middle, middle)
    odd = np.array([c for c, k in zip(cell.counted + 1, cell.counts, strict=True) if k not in (1, n - 1)], np.int64)
    is_known[odd] = False  # the count says that it is not one row
    is_known[0] = False
    points = []
    for column in np.flatnonzero(is_known):
        weights = solved[: len(maps), column]
        along = scatter @ weights
        variance = float(weights @ along)
        if variance <= MIN_VARIANCE * n:
            continue  # all rows have the same value
        step = along / np.sqrt(variance / (1 - 1 / n))
        points += [middle + step, middle - step]
    return points
