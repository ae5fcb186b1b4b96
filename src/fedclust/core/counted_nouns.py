"""Counts with their nouns, for the sentences that people read."""

from __future__ import annotations


def count_noun(value: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> count_noun(1, "site"), count_noun(2000, "row"), count_noun(0, "centre was", "centres were")
    ('1 site', '2,000 rows', '0 centres were')
    """
    return f"{value:,} {one if value == 1 else many or one + 's'}"
