"""Every key a study file may hold, what each takes, and what to say to one that is not among them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any

from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES
from fedclust.app.choose_k import CRITERIA, RULES
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import MODES
from fedclust.models import METHODS
from fedclust.models.cmeans import SCALES, STARTS
from fedclust.models.fuzzy_variants import AVERAGES
from fedclust.models.labels_only import OPENS
from fedclust.models.private_cmeans import VARIANTS
from fedclust.models.summary_estimator import RANGE_SCALES
from fedclust.privacy.accountant import MOST_DELTA
from fedclust.questions.alignment import DUPLICATES
from fedclust.questions.alignment import METHODS as ALIGNMENTS
from fedclust.questions.cluster_indices import BEST
from fedclust.questions.missing_values import MISSING
from fedclust.questions.schema import TYPES
from fedclust.site.policy import PROFILES


@dataclass(frozen=True)
class Key:
    """A key of the file, and what it takes."""

    what: str
    fits: Callable[[Any], bool]
    choices: tuple[str, ...] = ()
    secret: bool = False  # a value that no message repeats


def _choice(*choices: str) -> Key:
    shown = ("one of " if choices[1:] else "") + _quoted(choices)
    return Key(shown, lambda value: value in choices, choices)


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return (_whole(value) or isinstance(value, float)) and abs(value) <= float_info.max


def _list_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(fits, value))


def _pair(value: Any) -> bool:
    return _list_of(value, _number) and len(value) == 2 and value[0] <= value[1]


def _bounding(value: Any) -> bool:
    return _pair(value) or (isinstance(value, dict) and bool(value) and all(map(_pair, value.values())))


def _level(value: Any) -> bool:
    return isinstance(value, (str, bool)) or _number(value)


def _tables(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def _points(value: Any) -> bool:
    return _list_of(value, lambda row: _list_of(row, _number) and len(row) == len(value[0]))


def _quorum(value: Any) -> bool:
    return value == "all" or (_whole(value) and value >= 1) or (isinstance(value, float) and 0 < value <= 1)


def k_range(value: Any) -> tuple[int, int] | None:
    """The ends of a range such as "2..8", or None."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*\.\.\s*(\d{1,6})\s*", value) if isinstance(value, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _clusters(value: Any) -> bool:
    ends = k_range(value)
    return COUNT.fits(value) or value == "auto" or (ends is not None and 1 <= ends[0] < ends[1])


def _name(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\s./\\][^/\\\n\0]*", value) is not None


COUNT = Key("a whole number of at least 1", lambda value: _whole(value) and value >= 1)
SEED = Key("a whole number from 0 to 4294967295", lambda value: _whole(value) and 0 <= value < 1 << 32)
TABLE = Key("a table", lambda value: isinstance(value, dict))
NAMES = Key(
    'a list of column names, such as ["age", "thalach"]',
    lambda value: _list_of(value, lambda name: isinstance(name, str) and bool(name)),
)
TOP = {
    "name": Key("a short text without '/', such as 'heart'", _name),
    "columns": Key(
        f"{NAMES.what}, or a table [columns.NAME] for each", lambda value: NAMES.fits(value) or _tables(value)
    ),
    "scale": _choice(*SCALES, *RANGE_SCALES),
    "missing": _choice(*MISSING),
    "missing_values": Key(
        "a table of lists by column, such as { chol = [0] }",
        lambda value: isinstance(value, dict) and all(_list_of(own, _level) for own in value.values()),
    ),
    "split": _choice("rows", "columns"),
    "id": Key("the name of a column", lambda value: isinstance(value, str) and bool(value)),
    "bounds": Key("a pair [low, high] with low <= high, or a table of such pairs by column", _bounding),
    "seed": SEED,
    "cluster": TABLE,
    "align": TABLE,
    "privacy": TABLE,
    "sites": TABLE,
}
CHOOSING = ("criterion", "index", "rule", "restarts")  # how k is found where it is not given
ABOVE = Key("a number above 0", lambda value: _number(value) and value > 0)
OWN = {  # parameters that some methods have and others have not; by the estimators' own names
    "family": _choice(*FAMILIES),
    "average": _choice(*AVERAGES),
    "opens": _choice(*OPENS),
    "step": ABOVE,
    "local_tol": ABOVE,
    "local_rounds": COUNT,
    "local_clusters": COUNT,
    "min_rows": Key("a whole number of at least 2", lambda value: _whole(value) and value >= 2),
}
CLUSTER = {
    "floor": COUNT,
    "max_nodes": COUNT,
    "method": _choice(*METHODS),
    "k": Key("a whole number of at least 1, a range such as '2..8', or 'auto'", _clusters),
    "m": Key("a number above 1", lambda value: _number(value) and value > 1),
    "tol": Key("a number of at least 0, or 'none'", lambda value: value == "none" or (_number(value) and value >= 0)),
    "max_iter": COUNT,
    "init": Key(
        f"one of {_quoted(STARTS)}, or a list of centres, each a list of as many numbers",
        lambda value: value in STARTS or _points(value),
        choices=STARTS,
    ),
    "participation": Key("a number above 0 and at most 1", lambda value: _number(value) and 0 < value <= 1),
    "quorum": Key("'all', a number of sites, or a share such as 0.8", _quorum, choices=("all",)),
    **OWN,
    "singletons": _choice("none", "paper"),
    "small_sites": _choice("none", "paper"),
    "seed": SEED,
    "criterion": _choice(*CRITERIA),
    "index": _choice(*BEST),
    "rule": _choice(*RULES),
    "restarts": COUNT,
}
LEVELS = Key("a list of texts or of numbers", lambda value: _list_of(value, _level))
COLUMN = {
    "type": _choice(*TYPES),
    "unit": Key("a text, such as 'mmHg'", lambda value: isinstance(value, str)),
    "levels": LEVELS,
    "codes": Key("a list of numbers that ascend, one for each level", lambda value: _list_of(value, _number)),
    "missing_values": LEVELS,
}
PRIVACY = {
    "aggregation": _choice(*MODES),
    "lead": Key("a site's name", lambda value: isinstance(value, str)),
    "early_stopping": Key("true or false", lambda value: isinstance(value, bool)),
    "epsilon": Key("a number above 0", lambda value: _number(value) and value > 0),
    "delta": Key(
        f"a number above 0, at most {MOST_DELTA:g} and far below 1 / rows, such as 1e-6",
        lambda value: _number(value) and 0 < value <= MOST_DELTA,
    ),
    "variant": _choice(*VARIANTS),
}
ALIGN = {"method": _choice(*ALIGNMENTS), "duplicates": _choice(*DUPLICATES)}
SITE = {
    "source": Key(
        'a path, or a table such as { sql = "SELECT ...", database = "FILE" }',
        lambda value: isinstance(value, (str, dict)) and bool(value),
        secret=True,
    ),
    "policy": _choice(*PROFILES),
    "columns": NAMES,
}
PLACES = {
    "[sites.NAME]": SITE,
    "[columns.NAME]": COLUMN,
    "[privacy]": PRIVACY,
    "[align]": ALIGN,
    "[cluster]": CLUSTER,
    "the top, before the first [table]": TOP,
}
NEEDED = {
    "name": 'a name; write name = "..." at the top',
    "cluster": 'what to look for; add [cluster] with method = "fuzzy-c-means" and k = 3',
    "sites": 'its sites; add [sites.NAME] with source = "FILE" for each',
}


def checked(table: Mapping[str, Any], known: Mapping[str, Key], place: str) -> Mapping[str, Any]:
    """The table itself, once each of its keys is known there and each value fits."""
    for name, value in table.items():
        if name not in known:
            raise StudyError(_unknown(name, known, place))
        key, at = known[name], name if place == "the study" else f"{name} in {place}"
        shown = f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else value
        told = f"{at} is {shown}" if isinstance(value, (str, int, float)) and not key.secret else f"{at} does not fit"
        if not key.fits(value):
            raise StudyError(f"{told}; {meant(value, key.choices) or f'it must be {key.what}'}")
    return table


def _unknown(name: str, known: Mapping[str, Key], place: str) -> str:
    home = next((there for there, keys in PLACES.items() if name in keys), None)
    if home is not None:
        return f"'{name}' does not belong in {place}; move it to {home}"
    return f"{place} has no key '{name}'; {meant(name, known) or f'it may hold {_quoted(known)}'}"


def meant(word: Any, known: Iterable[str]) -> str:
    """A question with the nearest known word, or nothing."""
    close = difflib.get_close_matches(word.casefold(), list(known), n=1) if isinstance(word, str) else []
    return f"did you mean '{close[0]}'?" if close else ""
