"""What a reader of a c-means result should hear of its end: where it stopped too soon, and what had no influence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.algorithms import vertical
from fedclust.algorithms.model import Fitted
from fedclust.core.site import View
from fedclust.federation import Federation
from fedclust.preprocessing.bounds import LEAST

COARSE = 1e-3  # of what there is to tell apart, a tol beyond which says little


def ending(
    tol: float | None, max_rounds: int, columns: Sequence[str], result: tuple[Fitted, View] | vertical.Settled
) -> list[str]:
    """A stop before `tol` was reached, or by one too coarse for such data."""
    split = isinstance(result, vertical.Settled)
    fitted = result.fitted if isinstance(result, vertical.Settled) else result[0]
    if tol is None or not fitted.history:
        return []
    if not fitted.history[-1].shift < tol:
        if isinstance(result, vertical.Settled) and not result.d2.size:
            return [f"Stopped after {max_rounds} rounds, before every row stayed in its cluster."]
        what = "the distances changed" if split else "the centres moved"
        return [f"Stopped after {max_rounds} rounds, before {what} by less than {tol:g}."]
    if isinstance(result, vertical.Settled):
        small = _small(tol, float(np.sqrt(result.d2.max(initial=0.0))))
        return [_coarse(tol, "distances")] if small else []
    view = result[1]
    # The view's powers of two tell how far each column reaches; a column of zeros has the least there is.
    reach = np.where(view.exponents > LEAST, np.ldexp(1.0, view.exponents), 0.0)
    names = [name for name, far in zip(columns, reach.tolist(), strict=True) if _small(tol, far)]
    if names:
        return [_coarse(tol, f"values ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")]
    apart = np.ptp(np.concatenate([view.points(fitted.start), fitted.centers]), axis=0).max()
    return [_coarse(tol, "distances between centres")] if _small(tol, float(apart)) else []


def _small(tol: float, extent: float) -> bool:
    return 0 < COARSE * extent < tol


def _coarse(tol: float, what: str) -> str:
    return f"Stopped by tol = {tol:g}, coarse for such small {what}: set scale to 'standardise', or a smaller tol."


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
