"""Notes on the end of a c-means fit: an early stop, centres that coincide, and constant columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.core.counted_nouns import count_noun
from fedclust.core.site_interface import View
from fedclust.federation.federation import Federation
from fedclust.questions.bounds import MIN_EXPONENT

COARSE_TOL_FRACTION = 1e-3  # of the range of the values; a larger tol is too coarse
COINCIDENCE_TOLERANCE = 1e-4  # of the mean distance of rows to their centres; centres closer than this coincide
CENTER_WEIGHT_TOLERANCE = 0.05  # relative difference that the weights of such centres may have
MAX_NAMED_CENTERS = 6  # in one sentence


def ending_notes(
    tol: float | None, max_iter: int, columns: Sequence[str], result: tuple[FitResult, View] | column_split.ColumnFit
) -> list[str]:
    """Notes on a run that stopped before it reached `tol`, or whose `tol` is too coarse for the data."""
    split = isinstance(result, column_split.ColumnFit)
    fitted = result.fitted if isinstance(result, column_split.ColumnFit) else result[0]
    if tol is None or not fitted.history:
        return []
    if not fitted.history[-1].shift < tol:
        if isinstance(result, column_split.ColumnFit) and not result.d2.size:
            rounds = count_noun(max_iter, "round")
            return [f"Stopped after {rounds}, while rows still changed their cluster. Increase max_iter."]
        what = "the distances still changed" if split else "the centres still moved"
        return [f"Stopped after {count_noun(max_iter, 'round')}, while {what} by {tol:g} or more. Increase max_iter."]
    if isinstance(result, column_split.ColumnFit):
        small = _is_coarse(tol, float(np.sqrt(result.d2.max(initial=0.0))))
        return [_coarse_tol_note(tol, "distances")] if small else []
    view = result[1]
    # The view's powers of two bound the values of each column; a column of zeros has the smallest one.
    reach = np.where(view.exponents > MIN_EXPONENT, np.ldexp(1.0, view.exponents), 0.0)
    names = [name for name, far in zip(columns, reach.tolist(), strict=True) if _is_coarse(tol, far)]
    scaled = view.spread is not None
    if names:
        values = f"values ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        return [_coarse_tol_note(tol, values, scaled=scaled)]
    if len(fitted.centers) == 1:
        return []  # one centre moves from a mean to nearly the same mean
    apart = np.ptp(np.concatenate([view.transform_points(fitted.start), fitted.centers]), axis=0).max()
    found = _is_coarse(tol, float(apart))
    return [_coarse_tol_note(tol, "distances between centres", scaled=scaled)] if found else []


def _is_coarse(tol: float, extent: float) -> bool:
    return 0 < COARSE_TOL_FRACTION * extent < tol


def _coarse_tol_note(tol: float, what: str, *, scaled: bool = False) -> str:
    advice = "Lower tol." if scaled else "Set scale to 'standardise', or lower tol."
    return f"The tolerance {tol:g} is large compared with the {what}. {advice}"


def coincidence_notes(m: float, result: tuple[FitResult, View] | column_split.ColumnFit) -> list[str]:
    """Notes on fuzzy centres that coincide, which happens if m is too high for the number of columns.

    Rows belong to such centres equally, so the centres have the same weight. The weights are therefore compared
    too: small clusters that are close to each other, but far from a much wider one, mostly have different weights.
    """
    if m <= 1:
        return []
    fitted = result.fitted if isinstance(result, column_split.ColumnFit) else result[0]
    weights = fitted.mass.tolist()
    near = COINCIDENCE_TOLERANCE * math.sqrt(max(fitted.objective, 0.0) / (math.fsum(weights) or 1.0))
    groups: list[list[int]] = []
    for i, weight in enumerate(weights):
        like = (
            own
            for own in groups
            if abs(weight - weights[own[0]]) <= CENTER_WEIGHT_TOLERANCE * max(weight, weights[own[0]])
        )
        found = next((own for own in like if _center_distance(result, own[0], i) <= near), None)
        if found is None:
            groups.append([i])
        else:
            found.append(i)
    places = "; ".join(_join_numbers(own) for own in groups if len(own) > 1)
    remedy = "Lower m, use c-means, or ask for fewer clusters"
    return [f"Centres {places} coincide, so rows belong to each of them equally. {remedy}."] if places else []


def _center_distance(result: tuple[FitResult, View] | column_split.ColumnFit, i: int, j: int) -> float:
    """Return the distance of two centres; for a column split, the largest difference of a row's distances to them."""
    if isinstance(result, column_split.ColumnFit):
        return float(np.abs(np.sqrt(result.d2[i]) - np.sqrt(result.d2[j])).max(initial=0.0))
    apart = result[0].centers[i] - result[0].centers[j]
    return math.sqrt(math.fsum((apart * apart).tolist()))


def _join_numbers(places: Sequence[int]) -> str:
    """Return numbers as part of a sentence.

    >>> _join_numbers([0, 2, 3]), _join_numbers(range(9))
    ('0, 2 and 3', '0, 1, 2, 3, 4, 5 and 3 more')
    """
    shown = [str(place) for place in places[:MAX_NAMED_CENTERS]]
    *most, last = [*shown, f"{len(places) - MAX_NAMED_CENTERS} more"] if len(places) > MAX_NAMED_CENTERS else shown
    return f"{', '.join(most)} and {last}"


def constant_column_notes(fed: Federation, missing: str) -> list[str]:
    """Notes on columns that hold a single value, as far as this process can see."""
    surveys = [(h.source.columns, h.survey_for(missing)) for h in fed.site_data.values()]
    names = {name for own, _ in surveys for name in own}
    for own, found in surveys:
        names -= {name for name in own if name not in found.constant}
    same = [
        name
        for name in fed.columns
        if name in names and len({float(s.lo[o.index(name)]) for o, s in surveys if name in o}) == 1
    ]
    return [f"These columns are constant and have no influence: {', '.join(same)}."] if same else []
