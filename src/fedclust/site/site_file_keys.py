"""The keys that a site's own file may have, with their valid values in words."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedclust.core.effects import HANDLERS
from fedclust.core.errors import StudyError
from fedclust.core.release import FIELD_CLASSES
from fedclust.privacy.accountant import MAX_DELTA
from fedclust.site.policy import AGGREGATION_STRENGTH, PROFILES
from fedclust.site.sources.noised_rows import MECHANISMS


@dataclass(frozen=True)
class KeyRule:
    """The valid values of a key, in words and as a test."""

    description: str
    is_valid: Callable[[Any], bool]


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _are_handler_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name in HANDLERS for name in value)


COUNT_RULE = KeyRule("a whole number; 0 means no rule", _is_whole_number)
BOOLEAN_RULE = KeyRule("true or false", lambda value: isinstance(value, bool))
TEXT_RULE = KeyRule("a text", lambda value: isinstance(value, str) and bool(value))
TABLE_RULE = KeyRule("a table", lambda value: isinstance(value, dict))
QUESTIONS_RULE = KeyRule('a list of questions, such as ["bounds.count_rows", "row_split.moments"]', _are_handler_names)
SITE_FILE_KEYS = {
    "name": TEXT_RULE,
    "source": KeyRule(
        'a path, or a table such as { sql = "SELECT ...", database = "FILE" }',
        lambda value: TEXT_RULE.is_valid(value) or (isinstance(value, dict) and set(value) <= {"sql", "database"}),
    ),
    "id": TEXT_RULE,
    "state": TEXT_RULE,
    "identity": TEXT_RULE,
    "coordinator": TEXT_RULE,
    "steward": KeyRule(
        "the path of a public key, or a list of such paths",
        lambda value: TEXT_RULE.is_valid(value) or (isinstance(value, list) and all(map(TEXT_RULE.is_valid, value))),
    ),
    "approval": TEXT_RULE,
    "policy": TABLE_RULE,
    "noise": TABLE_RULE,
    "roster": TABLE_RULE,
}
POLICY_KEYS = {
    "profile": KeyRule(f"one of {', '.join(PROFILES)}", lambda value: value in PROFILES),
    "min_rows": COUNT_RULE,
    "min_cell": COUNT_RULE,
    "max_share": KeyRule("a number from 0 to 1; 0 means no rule", lambda value: _is_number(value) and value <= 1),
    "max_ratio": KeyRule("a number of at least 0; 0 means no rule", _is_number),
    "min_parties": COUNT_RULE,
    "aggregation": KeyRule(f"one of {', '.join(AGGREGATION_STRENGTH)}", lambda value: value in AGGREGATION_STRENGTH),
    "one_cohort": BOOLEAN_RULE,
    "groups": BOOLEAN_RULE,
    "cohort_gap": COUNT_RULE,
    "points": BOOLEAN_RULE,
    "weights": BOOLEAN_RULE,
    "rounding": COUNT_RULE,
    "max_calls": COUNT_RULE,
    "epsilon": KeyRule("a number of at least 0; 0 means no rule", _is_number),
    "delta": KeyRule(
        f"a number from 0 to {MAX_DELTA:g}; 0 means 1e-6", lambda value: _is_number(value) and value <= MAX_DELTA
    ),
    "max_ids": KeyRule("a number of at least 0; 0 means no rule", _is_number),
    "max_alignments": COUNT_RULE,
    "handlers": QUESTIONS_RULE,
    "withheld": QUESTIONS_RULE,
    "columns": KeyRule(
        'a list of columns, such as ["age", "bmi"]',
        lambda value: isinstance(value, list) and all(map(TEXT_RULE.is_valid, value)),
    ),
    "signatures": KeyRule("a whole number of at least 1", lambda value: _is_whole_number(value) and value >= 1),
    "packages": KeyRule(
        'a list of Python packages, such as ["fedclust", "our_methods"]',
        lambda value: isinstance(value, list) and all(isinstance(name, str) and name for name in value),
    ),
    "classes": KeyRule(
        f"a list of classes from {', '.join(FIELD_CLASSES)}",
        lambda value: isinstance(value, list) and set(map(str, value)) <= set(FIELD_CLASSES),
    ),
}


POSITIVE_RULE = KeyRule("a number above 0", lambda value: _is_number(value) and value > 0)
ROW_NOISE_KEYS = {
    "epsilon": POSITIVE_RULE,
    "bounds": KeyRule(
        "a pair [low, high], or a table of such pairs by column", lambda value: isinstance(value, (list, dict))
    ),
    "mechanism": KeyRule(f"one of {', '.join(MECHANISMS)}", lambda value: value in MECHANISMS),
    "budget": POSITIVE_RULE,
}


def check_keys(table: Mapping[str, Any], known: Mapping[str, KeyRule], place: str) -> Mapping[str, Any]:
    for name, value in table.items():
        if name not in known:
            raise StudyError(
                f"{place} has an unknown key '{name}'; "
                f"{_suggest_key(name, known) or 'valid keys are ' + ', '.join(known)}"
            )
        if not known[name].is_valid(value):
            raise StudyError(f"{name} in {place} is not valid; it must be {known[name].description}")
    return table


def _suggest_key(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.casefold(), list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""
