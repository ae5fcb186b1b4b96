"""What a site's rules know of a question, as types that its message inherits.

A site judges a question by these types alone. How a field of a message is spelled decides nothing, and a message
without a type gets the strict default: rows with gaps are refused, and no point is seen through a view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedclust.core.site_interface import View

REFUSE_GAPS = "refuse"  # how rows with gaps are read for a question that does not say


class ViewedQuestion:
    """A question about rows as a view shows them; the view also says how rows with gaps are read."""

    view: View


class GapsQuestion(ABC):
    """A question without a view that says how rows with gaps are read."""

    @abstractmethod
    def rows_with_gaps(self) -> str:
        """One of the ways that `questions.missing_values` lists."""


class PointsQuestion(ABC):
    """A question for points that says how many it wants."""

    @abstractmethod
    def max_points(self) -> int:
        """The most points that an answer may hold."""


class FlooredQuestion(ABC):
    """A question for points that says how many rows each stands for at least; a site may ask for more."""

    @abstractmethod
    def rows_per_point(self) -> int:
        """The fewest rows behind each point."""


class CommonRowsQuestion(ABC):
    """A question that says how many rows the sites have in common."""

    @abstractmethod
    def rows_in_common(self) -> int:
        """The rows that all sites have."""


class ClassesQuestion(ABC):
    """A question that puts rows into classes, whose means a site then works with."""

    @abstractmethod
    def smallest_class(self) -> int:
        """The fewest rows of a class that has any."""
