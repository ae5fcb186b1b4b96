"""What all questions of a choice of K share: which rows are read, and how columns are seen."""

from __future__ import annotations

from dataclasses import dataclass

from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints
from fedclust.questions.choice_of_k.choice_questions import RowMap
from fedclust.questions.choice_of_k.column_kinds import Geometry
from fedclust.questions.choice_of_k.table_spread import TableSpread


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
    spread: TableSpread | None = None  # with a floor

    @property
    def fields(self) -> tuple[View, int, int, Ints, Floats, Floats, Floats, RowMap]:
        """The first fields of a question about mapped rows."""
        columns = self.columns, self.mean, self.sd, self.reach
        return self.view, self.seed, self.share, *columns, self.geometry.row_map
