"""Every key of a study file, the values it accepts, and the error for an unknown key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fedclust.app.choose_k import INDEX_RULES, K_CRITERIA
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import AGGREGATION_MODES
from fedclust.models.centers_estimator import CENTER_SCALES
from fedclust.models.floored_kmeans import MAX_FLOOR, OPENING_CHOICES
from fedclust.models.methods import study_methods
from fedclust.models.parameters import (
    COUNT_PARAMETER,
    POSITIVE_PARAMETER,
    Parameter,
    is_list_of,
    is_number,
    is_whole,
    one_of,
    quote_words,
)
from fedclust.models.private_cmeans import PRIVATE_VARIANTS
from fedclust.models.summary_estimator import RANGE_SCALES
from fedclust.privacy.accountant import MAX_DELTA
from fedclust.questions.alignment import ALIGNMENT_METHODS as ALIGNMENTS
from fedclust.questions.alignment import DUPLICATE_RULES
from fedclust.questions.cluster_indices import BEST_DIRECTION
from fedclust.questions.missing_values import MISSING_RULES
from fedclust.questions.schema import COLUMN_TYPES
from fedclust.site.policy import PROFILES


def _is_pair(value: Any) -> bool:
    return is_list_of(value, is_number) and len(value) == 2 and value[0] <= value[1]


def _are_bounds(value: Any) -> bool:
    return _is_pair(value) or (isinstance(value, dict) and bool(value) and all(map(_is_pair, value.values())))


def _is_level(value: Any) -> bool:
    return isinstance(value, (str, bool)) or is_number(value)


def _is_filled_table(value: Any) -> bool:
    return isinstance(value, dict) and bool(value)


def parse_k_range(value: Any) -> tuple[int, int] | None:
    """Return the ends of a range such as "2..8", or None."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*\.\.\s*(\d{1,6})\s*", value) if isinstance(value, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _is_cluster_count(value: Any) -> bool:
    ends = parse_k_range(value)
    return COUNT_PARAMETER.is_valid(value) or value == "auto" or (ends is not None and 1 <= ends[0] < ends[1])


def _is_study_name(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^\s./\\][^/\\\n\0]*", value) is not None


SEED_PARAMETER = Parameter(
    "a whole number from 0 to 4294967295", lambda value: is_whole(value) and 0 <= value < 1 << 32
)
TABLE_PARAMETER = Parameter("a table", lambda value: isinstance(value, dict))
COLUMN_NAMES_PARAMETER = Parameter(
    'a list of column names, such as ["age", "thalach"]',
    lambda value: is_list_of(value, lambda name: isinstance(name, str) and bool(name)),
)
STUDY_KEYS = {
    "name": Parameter("a short string without '/', such as 'heart'", _is_study_name),
    "columns": Parameter(
        f"{COLUMN_NAMES_PARAMETER.description}, or a table [columns.NAME] for each",
        lambda value: COLUMN_NAMES_PARAMETER.is_valid(value) or _is_filled_table(value),
    ),
    "scale": one_of(*CENTER_SCALES, *RANGE_SCALES),
    "missing": one_of(*MISSING_RULES),
    "missing_values": Parameter(
        "a table with a list for each column, such as { chol = [0] }",
        lambda value: isinstance(value, dict) and all(is_list_of(own, _is_level) for own in value.values()),
    ),
    "split": one_of("rows", "columns"),
    "id": Parameter("the name of a column", lambda value: isinstance(value, str) and bool(value)),
    "bounds": Parameter(
        "a pair [low, high] with low <= high, or a table with such a pair for each column", _are_bounds
    ),
    "seed": SEED_PARAMETER,
    "cluster": TABLE_PARAMETER,
    "align": TABLE_PARAMETER,
    "privacy": TABLE_PARAMETER,
    "sites": TABLE_PARAMETER,
}
CHOICE_KEYS = ("criterion", "index", "rule", "restarts")  # how k is chosen if it is not given
CLUSTER_KEYS = {  # in addition, [cluster] accepts the parameters that its method lists
    "k": Parameter("a whole number of at least 1, a range such as '2..8', or 'auto'", _is_cluster_count),
    "seed": SEED_PARAMETER,
    "criterion": one_of(*K_CRITERIA),
    "index": one_of(*BEST_DIRECTION),
    "rule": one_of(*INDEX_RULES),
    "restarts": COUNT_PARAMETER,
}


def cluster_keys(method: Any = None) -> dict[str, Parameter]:
    """Return the keys of [cluster] for all methods, to recognise keys of other methods.

    A key that several methods have means what this method says, and no method changes the keys of every study.
    """
    known = study_methods()
    common = {"method": one_of(*known), **CLUSTER_KEYS}
    keys = dict(common)
    for other in known.values():
        keys |= other.parameters
    if isinstance(method, str) and method in known:
        keys |= known[method].parameters
    return keys | common


LEVELS_PARAMETER = Parameter("a list of strings or numbers", lambda value: is_list_of(value, _is_level))
COLUMN_KEYS = {
    "type": one_of(*COLUMN_TYPES),
    "unit": Parameter("a string, such as 'mmHg'", lambda value: isinstance(value, str)),
    "levels": LEVELS_PARAMETER,
    "codes": Parameter("a list of increasing numbers, one for each level", lambda value: is_list_of(value, is_number)),
    "missing_values": LEVELS_PARAMETER,
}
PRIVACY_KEYS = {
    "aggregation": one_of(*AGGREGATION_MODES),
    "lead": Parameter("a site's name", lambda value: isinstance(value, str)),
    "verified": Parameter("true or false", lambda value: isinstance(value, bool)),
    "early_stopping": Parameter("true or false", lambda value: isinstance(value, bool)),
    "epsilon": POSITIVE_PARAMETER,
    "delta": Parameter(
        f"a number above 0, at most {MAX_DELTA:g} and far below 1 / (number of rows), such as 1e-6",
        lambda value: is_number(value) and 0 < value <= MAX_DELTA,
    ),
    "variant": one_of(*PRIVATE_VARIANTS),
    "opening": one_of(*OPENING_CHOICES),
    "floor": Parameter(
        f"a whole number from 2 to {MAX_FLOOR}", lambda value: is_whole(value) and 2 <= value <= MAX_FLOOR
    ),
}
ALIGN_KEYS = {"method": one_of(*ALIGNMENTS), "duplicates": one_of(*DUPLICATE_RULES)}
SITE_KEYS = {
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
    "columns": COLUMN_NAMES_PARAMETER,
}


def _keys_by_table() -> dict[str, Mapping[str, Parameter]]:
    """Return every table of a study and its keys, in the order in which a misplaced key is looked up."""
    return {
        "[sites.NAME]": SITE_KEYS,
        "[columns.NAME]": COLUMN_KEYS,
        "[privacy]": PRIVACY_KEYS,
        "[align]": ALIGN_KEYS,
        "[cluster]": cluster_keys(),
        "the top, before the first [table]": STUDY_KEYS,
    }


REQUIRED_KEYS = {
    "name": 'a name; write name = "..." at the top',
    "cluster": 'a [cluster] table; add [cluster] with method = "fuzzy-c-means" and k = 3',
    "sites": 'its sites; add [sites.NAME] with source = "FILE" for each',
}


def check_table(table: Mapping[str, Any], known: Mapping[str, Parameter], place: str) -> Mapping[str, Any]:
    """Return the table if all its keys are known there and all values are valid."""
    for name, value in table.items():
        if name not in known:
            raise StudyError(_explain_unknown_key(name, known, place))
        key, at = known[name], name if place == "the study" else f"{name} in {place}"
        shown = f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else value
        complaint = (
            f"{at} is {shown}" if isinstance(value, (str, int, float)) and not key.secret else f"{at} is not valid"
        )
        if not key.is_valid(value):
            raise StudyError(f"{complaint}; {suggest_key(value, key.choices) or f'it must be {key.description}'}")
    return table


def _explain_unknown_key(name: str, known: Mapping[str, Parameter], place: str) -> str:
    home = next((there for there, keys in _keys_by_table().items() if name in keys), None)
    if home is not None:
        return f"'{name}' does not belong in {place}; move it to {home}"
    return f"{place} has no key '{name}'; {suggest_key(name, known) or f'its keys are {quote_words(known)}'}"


def suggest_key(word: Any, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known word, or an empty text."""
    close = difflib.get_close_matches(word.casefold(), list(known), n=1) if isinstance(word, str) else []
    return f"did you mean '{close[0]}'?" if close else ""
