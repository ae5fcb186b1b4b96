"""Every key a study file may hold, what each takes, and what to say to one that is not among them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fedclust.app.choose_k import CRITERIA, RULES
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import MODES
from fedclust.models.centers_estimator import SCALES
from fedclust.models.methods import study_methods
from fedclust.models.parameters import ABOVE_ZERO, COUNT, Parameter, is_list_of, is_number, is_whole, one_of, quoted
from fedclust.models.private_cmeans import VARIANTS
from fedclust.models.summary_estimator import RANGE_SCALES
from fedclust.privacy.accountant import MOST_DELTA
from fedclust.questions.alignment import DUPLICATES
from fedclust.questions.alignment import METHODS as ALIGNMENTS
from fedclust.questions.cluster_indices import BEST
from fedclust.questions.missing_values import MISSING
from fedclust.questions.schema import TYPES
from fedclust.site.policy import PROFILES


def _pair(value: Any) -> bool:
    return is_list_of(value, is_number) and len(value) == 2 and value[0] <= value[1]


def _bounding(value: Any) -> bool:
    return _pair(value) or (isinstance(value, dict) and bool(value) and all(map(_pair, value.values())))


def _level(value: Any) -> bool:
    return isinstance(value, (str, bool)) or is_number(value)


def _tables(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def k_range(value: Any) -> tuple[int, int] | None:
    """The ends of a range such as "2..8", or None."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*\.\.\s*(\d{1,6})\s*", value) if isinstance(value, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _clusters(value: Any) -> bool:
    ends = k_range(value)
    return COUNT.fits(value) or value == "auto" or (ends is not None and 1 <= ends[0] < ends[1])


def _name(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\s./\\][^/\\\n\0]*", value) is not None


SEED = Parameter("a whole number from 0 to 4294967295", lambda value: is_whole(value) and 0 <= value < 1 << 32)
TABLE = Parameter("a table", lambda value: isinstance(value, dict))
NAMES = Parameter(
    'a list of column names, such as ["age", "thalach"]',
    lambda value: is_list_of(value, lambda name: isinstance(name, str) and bool(name)),
)
TOP = {
    "name": Parameter("a short text without '/', such as 'heart'", _name),
    "columns": Parameter(
        f"{NAMES.what}, or a table [columns.NAME] for each", lambda value: NAMES.fits(value) or _tables(value)
    ),
    "scale": one_of(*SCALES, *RANGE_SCALES),
    "missing": one_of(*MISSING),
    "missing_values": Parameter(
        "a table of lists by column, such as { chol = [0] }",
        lambda value: isinstance(value, dict) and all(is_list_of(own, _level) for own in value.values()),
    ),
    "split": one_of("rows", "columns"),
    "id": Parameter("the name of a column", lambda value: isinstance(value, str) and bool(value)),
    "bounds": Parameter("a pair [low, high] with low <= high, or a table of such pairs by column", _bounding),
    "seed": SEED,
    "cluster": TABLE,
    "align": TABLE,
    "privacy": TABLE,
    "sites": TABLE,
}
CHOOSING = ("criterion", "index", "rule", "restarts")  # how k is found where it is not given
CLUSTER = {  # besides these, [cluster] takes what the record of its method lists
    "k": Parameter("a whole number of at least 1, a range such as '2..8', or 'auto'", _clusters),
    "seed": SEED,
    "criterion": one_of(*CRITERIA),
    "index": one_of(*BEST),
    "rule": one_of(*RULES),
    "restarts": COUNT,
}


def cluster_keys(method: Any = None) -> dict[str, Parameter]:
    """The keys of [cluster]: those of every method, so that one which another takes is known; this method's own win."""
    known = study_methods()
    keys = {"method": one_of(*known), **CLUSTER}
    for other in known.values():
        keys |= other.parameters
    return keys | dict(known[method].parameters) if isinstance(method, str) and method in known else keys


LEVELS = Parameter("a list of texts or of numbers", lambda value: is_list_of(value, _level))
COLUMN = {
    "type": one_of(*TYPES),
    "unit": Parameter("a text, such as 'mmHg'", lambda value: isinstance(value, str)),
    "levels": LEVELS,
    "codes": Parameter("a list of numbers that ascend, one for each level", lambda value: is_list_of(value, is_number)),
    "missing_values": LEVELS,
}
PRIVACY = {
    "aggregation": one_of(*MODES),
    "lead": Parameter("a site's name", lambda value: isinstance(value, str)),
    "early_stopping": Parameter("true or false", lambda value: isinstance(value, bool)),
    "epsilon": ABOVE_ZERO,
    "delta": Parameter(
        f"a number above 0, at most {MOST_DELTA:g} and far below 1 / rows, such as 1e-6",
        lambda value: is_number(value) and 0 < value <= MOST_DELTA,
    ),
    "variant": one_of(*VARIANTS),
}
ALIGN = {"method": one_of(*ALIGNMENTS), "duplicates": one_of(*DUPLICATES)}
SITE = {
    "source": Parameter(
        'a path, or a table such as { sql = "SELECT ...", database = "FILE" }',
        lambda value: isinstance(value, (str, dict)) and bool(value),
        secret=True,
    ),
    "policy": one_of(*PROFILES),
    "packages": Parameter(
        'a list of Python packages, such as ["our_methods"]',
        lambda value: is_list_of(value, lambda name: isinstance(name, str) and bool(name)),
    ),
    "columns": NAMES,
}


def _places() -> dict[str, Mapping[str, Parameter]]:
    """Every table of a study and its keys, in the order in which a misplaced key is looked for."""
    return {
        "[sites.NAME]": SITE,
        "[columns.NAME]": COLUMN,
        "[privacy]": PRIVACY,
        "[align]": ALIGN,
        "[cluster]": cluster_keys(),
        "the top, before the first [table]": TOP,
    }


NEEDED = {
    "name": 'a name; write name = "..." at the top',
    "cluster": 'what to look for; add [cluster] with method = "fuzzy-c-means" and k = 3',
    "sites": 'its sites; add [sites.NAME] with source = "FILE" for each',
}


def checked(table: Mapping[str, Any], known: Mapping[str, Parameter], place: str) -> Mapping[str, Any]:
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


def _unknown(name: str, known: Mapping[str, Parameter], place: str) -> str:
    home = next((there for there, keys in _places().items() if name in keys), None)
    if home is not None:
        return f"'{name}' does not belong in {place}; move it to {home}"
    return f"{place} has no key '{name}'; {meant(name, known) or f'it may hold {quoted(known)}'}"


def meant(word: Any, known: Iterable[str]) -> str:
    """A question with the nearest known word, or nothing."""
    close = difflib.get_close_matches(word.casefold(), list(known), n=1) if isinstance(word, str) else []
    return f"did you mean '{close[0]}'?" if close else ""
