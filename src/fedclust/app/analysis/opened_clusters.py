"""Around which centres a description may ask about clusters, if the fit opened only some of their sums."""

from __future__ import annotations

import numpy as np

from fedclust.app import indices
from fedclust.app.analysis.part_guard import PartGuard
from fedclust.core.types import Floats
from fedclust.federation.federation import Federation
from fedclust.models.assignment import CentersModel

NEVER_OPENED_REASON = (
    "In no iteration could the sums of all clusters be opened, so further sums of clusters could show few rows."
)
EARLIER_CELLS_NOTE = (
    "Sizes, indices and the map describe the clusters of the last iteration in which all sums were opened: sums of the "
    "final clusters could show the few rows that have changed since."
)


def centers_to_ask_about(model: CentersModel, fed: Federation, centers: Floats, parts: PartGuard) -> Floats:
    """Return the final centres, or those around which all sums were opened last if only some may be opened."""
    if not model.opens_floored:
        return centers
    opened = indices.opened_centers(model, fed)
    if not np.array_equal(opened, centers):
        parts.notes.append(EARLIER_CELLS_NOTE)
    return opened
