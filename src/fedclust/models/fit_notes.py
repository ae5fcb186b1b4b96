"""What a reader of a c-means result should hear of its end: a stop too soon, centres in one place, idle columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.fit_result import Fitted
from fedclust.core.site_interface import View
from fedclust.federation.federation import Federation
from fedclust.questions.bounds import MIN_EXPONENT

COARSE = 1e-3  # of what there is to tell apart, a tol beyond which says little
ONE_PLACE = 1e-4  # of how far rows lie from their centres: two centres that are no further apart are one
ALIKE = 0.05  # by how much the weights of such centres may differ
NAMED = 6  # centres in one sentence


def ending(
    tol: float | None, max_iter: int, columns: Sequence[str], result: tuple[Fitted, View] | column_split.Settled
) -> list[str]:
    """A stop before `tol` was reached, or by one too coarse for such data."""
    split = isinstance(result, column_split.Settled)
    fitted = result.fitted if isinstance(result, column_split.Settled) else result[0]
    if tol is None or not fitted.history:
        return []
    if not fitted.history[-1].shift < tol:
        if isinstance(result, column_split.Settled) and not result.d2.size:
            return [f"Stopped after {max_iter} rounds, before every row stayed in its cluster."]
        what = "the distances changed" if split else "the centres moved"
        return [f"Stopped after {max_iter} rounds, before {what} by less than {tol:g}."]
    if isinstance(result, column_split.Settled):
        small = _small(tol, float(np.sqrt(result.d2.max(initial=0.0))))
        return [_coarse(tol, "distances")] if small else []
    view = result[1]
    # The view's powers of two tell how far each column reaches; a column of zeros has the least there is.
    reach = np.where(view.exponents > MIN_EXPONENT, np.ldexp(1.0, view.exponents), 0.0)
    names = [name for name, far in zip(columns, reach.tolist(), strict=True) if _small(tol, far)]
    if names:
        return [_coarse(tol, f"values ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")]
    apart = np.ptp(np.concatenate([view.points(fitted.start), fitted.centers]), axis=0).max()
    return [_coarse(tol, "distances between centres")] if _small(tol, float(apart)) else []


def _small(tol: float, extent: float) -> bool:
    return 0 < COARSE * extent < tol


def _coarse(tol: float, what: str) -> str:
    return f"Stopped by tol = {tol:g}, coarse for such small {what}: set scale to 'standardise', or a smaller tol."


def coincident(m: float, result: tuple[Fitted, View] | column_split.Settled) -> list[str]:
    """Fuzzy centres that ended in one place, as happens where m is too high for so many columns.

    Rows belong to such centres alike, which gives these the same weight. That tells most of them from small clusters
    that are near to each other beside one that is ten thousand times wider.
    """
    if m <= 1:
        return []
    fitted = result.fitted if isinstance(result, column_split.Settled) else result[0]
    weights = fitted.mass.tolist()
    near = ONE_PLACE * math.sqrt(max(fitted.objective, 0.0) / (math.fsum(weights) or 1.0))
    groups: list[list[int]] = []
    for i, weight in enumerate(weights):
        like = (own for own in groups if abs(weight - weights[own[0]]) <= ALIKE * max(weight, weights[own[0]]))
        found = next((own for own in like if _apart(result, own[0], i) <= near), None)
        if found is None:
            groups.append([i])
        else:
            found.append(i)
    told = "; ".join(_listed(own) for own in groups if len(own) > 1)
    remedy = "lower m, use c-means, or ask for fewer clusters"
    return [f"Centres {told} coincide, and rows belong to them alike: {remedy}."] if told else []


def _apart(result: tuple[Fitted, View] | column_split.Settled, i: int, j: int) -> float:
    """How far two centres are from each other; over columns, by how much rows can tell."""
    if isinstance(result, column_split.Settled):
        return float(np.abs(np.sqrt(result.d2[i]) - np.sqrt(result.d2[j])).max(initial=0.0))
    return float(np.linalg.norm(result[0].centers[i] - result[0].centers[j]))


def _listed(places: Sequence[int]) -> str:
    """Numbers in a sentence.

    >>> _listed([0, 2, 3]), _listed(range(9))
    ('0, 2 and 3', '0, 1, 2, 3, 4, 5 and 3 more')
    """
    shown = [str(place) for place in places[:NAMED]]
    *most, last = [*shown, f"{len(places) - NAMED} more"] if len(places) > NAMED else shown
    return f"{', '.join(most)} and {last}"


def constant(fed: Federation, missing: str) -> list[str]:
    """Columns that hold one value everywhere, as far as this process can see."""
    surveys = [(h.source.columns, h.under(missing)) for h in fed.holdings.values()]
    names = {name for own, _ in surveys for name in own}
    for own, found in surveys:
        names -= {name for name in own if name not in found.constant}
    same = [
        name
        for name in fed.columns
        if name in names and len({float(s.lo[o.index(name)]) for o, s in surveys if name in o}) == 1
    ]
    return [f"Constant, so without influence: {', '.join(same)}."] if same else []
