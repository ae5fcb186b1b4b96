"""What a site's rules know about a question, as types that its message inherits.

A site judges a question by these types alone. The name of a message's field decides nothing. A message without such a
type gets the strict default: rows with missing values are refused, and points are not seen through a view. A question
whose handler reads nothing needs no such type: a site does not refuse it for missing values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from fedclust.core.site_interface import View

DISTANCE_UNIT = "unit of distances"  # a value on which the sites of a column split agree
REFUSE_GAPS = "refuse"  # the rule for missing values of a question that does not name one


class ViewedQuestion:
    """A question about rows as seen through a view; the view also says how rows with missing values are handled."""

    view: View


class UnitlessQuestion(ViewedQuestion):
    """A question whose answer holds no exact sums, so the bounds in its view choose no unit."""


class AgreedValuesQuestion(ABC):
    """A question with values on which all sites agree once in a run; other values would be another measure."""

    @abstractmethod
    def agreed_values(self) -> Mapping[str, int]:
        """The values, by what they mean."""


class GapsQuestion(ABC):
    """A question without a view that says how rows with missing values are handled."""

    @abstractmethod
    def rows_with_gaps(self) -> str:
        """One of the rules that `questions.missing_values` lists."""


class PointsQuestion(ABC):
    """A question for points that says how many it asks for."""

    @abstractmethod
    def max_points(self) -> int:
        """The largest number of points that an answer may hold."""


class FlooredQuestion(ABC):
    """A question for points that sets the fewest rows behind each point; a site may require more."""

    @abstractmethod
    def rows_per_point(self) -> int:
        """The fewest rows behind each point."""


class CommonRowsQuestion(ABC):
    """A question that says how many rows the sites have in common."""

    @abstractmethod
    def rows_in_common(self) -> int:
        """The number of rows that all sites have."""


class IdListQuestion(ABC):
    """A question that hands over lists of another site's ids."""

    @abstractmethod
    def longest_list(self) -> int:
        """The number of ids in the longest list."""


class ConsentQuestion(ABC):
    """A question whose answer helps to open a masked sum over some of the parties that were asked for it."""

    @abstractmethod
    def parties_in_sum(self) -> frozenset[str]:
        """The parties whose sum is opened."""


class ClassesQuestion(ABC):
    """A question that assigns rows to classes, whose means a site then uses."""

    @abstractmethod
    def smallest_class(self) -> int:
        """The number of rows in the smallest class that is not empty."""
