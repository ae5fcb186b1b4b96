"""What all questions of a choice of K share: which rows are read, and how columns are seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints
from fedclust.questions.choice_of_k.column_kinds import Geometry


@dataclass(frozen=True)
class ChoiceFrame:
    """The rows and columns that are read, how they are seen, and the fewest rows behind a sum."""

    view: View
    seed: int
    share: int
    columns: Ints
    mean: Floats
    sd: Floats
    reach: Floats
    rows: float
    geometry: Geometry
    floor: int

    @property
    def fields(self) -> tuple[Any, ...]:
        """The first fields of a question about mapped rows."""
        rows = (self.view, self.seed, self.share, self.columns, self.mean, self.sd, self.reach)
        return (*rows, self.geometry.row_map)
