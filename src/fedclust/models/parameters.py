"""Keys of a study file: the check of each value, and the description that an error message shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sys import float_info
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """A key of a study file: a description of its values, and a test for valid ones."""

    description: str
    is_valid: Callable[[Any], bool]
    choices: tuple[str, ...] = ()
    secret: bool = False  # no message repeats its value


def one_of(*choices: str) -> Parameter:
    """A parameter that takes one of the given words."""
    shown = ("one of " if choices[1:] else "") + quote_words(choices)
    return Parameter(shown, lambda value: value in choices, choices)


def quote_words(words: Iterable[str]) -> str:
    """Return quoted words as part of a sentence."""
    return ", ".join(f"'{word}'" for word in words)


def is_whole(value: Any) -> bool:
    """Whether a TOML value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a TOML value is a finite number."""
    return (is_whole(value) or isinstance(value, float)) and abs(value) <= float_info.max


def is_list_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    """Whether a TOML value is a non-empty list of such items."""
    return isinstance(value, list) and bool(value) and all(map(fits, value))


def _are_points(value: Any) -> bool:
    return is_list_of(value, lambda row: is_list_of(row, is_number) and len(row) == len(value[0]))


def _is_quorum(value: Any) -> bool:
    return value == "all" or (is_whole(value) and value >= 1) or (isinstance(value, float) and 0 < value <= 1)


def initial_centers_parameter(*names: str) -> Parameter:
    """A parameter for initial centres: one of these names, or a list of centres."""
    return Parameter(
        f"one of {quote_words(names)}, or a list of centres, each a list of numbers of the same length",
        lambda value: value in names or _are_points(value),
        choices=names,
    )


def at_least(lowest: int) -> Parameter:
    """A parameter that takes a whole number of at least `lowest`."""
    return Parameter(f"a whole number of at least {lowest}", lambda value: is_whole(value) and value >= lowest)


COUNT_PARAMETER = at_least(1)
POSITIVE_PARAMETER = Parameter("a number above 0", lambda value: is_number(value) and value > 0)
FUZZINESS_PARAMETER = Parameter("a number above 1", lambda value: is_number(value) and value > 1)
TOLERANCE_PARAMETER = Parameter(
    "a number of at least 0, or 'none'", lambda value: value == "none" or (is_number(value) and value >= 0)
)
SHARE_PARAMETER = Parameter("a number above 0 and at most 1", lambda value: is_number(value) and 0 < value <= 1)
QUORUM_PARAMETER = Parameter("'all', a number of sites, or a share such as 0.8", _is_quorum, choices=("all",))
