"""Formats numbers and facts of the report in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

STRONG_DEVIATION, SLIGHT_DEVIATION = 1.0, 0.5  # standard deviations from the mean for "high" and "rather high"
NO_BREAK_SPACE = "\u00a0"
OVERLAP_SHARE, CLEAR_SHARE = 0.35, 0.65  # of the way from equal memberships to membership in one cluster
MAX_NAMED_COLUMNS = 3  # in a description

INDEX_NAMES = {
    "evidence": "Evidence",
    "fuzzy-davies-bouldin": "Fuzzy Davies-Bouldin",
    "davies-bouldin": "Davies-Bouldin",
    "xie-beni": "Xie-Beni",
    "calinski-harabasz": "Calinski-Harabasz",
    "simplified-silhouette": "Simplified silhouette",
    "partition-coefficient": "Partition coefficient",
    "partition-entropy": "Partition entropy",
}
SHAPE_WORDS = {"round": "round", "axes": "stretched along axes", "full": "stretched"}
INDEX_MEANINGS = {
    "evidence": "Evidence is the logarithm of how likely the rows are as K components, whatever the parameters of the "
    "components. Components without a valley between them are then joined, so K may be lower than the highest point of "
    "the curve.",
    "fuzzy-davies-bouldin": "It compares the spread of rows around the centres with the distances between the centres.",
    "davies-bouldin": "It compares the spread of rows around their cluster's mean with the distances between means.",
    "xie-beni": "It divides the spread around the centres by the distance between the two closest centres.",
    "calinski-harabasz": "It divides the variance between clusters by the variance within them.",
    "simplified-silhouette": "It measures how much closer each row is to its own centre than to the next one.",
    "partition-coefficient": "It is 1 if every row belongs to one cluster only, and tends to fall as K grows.",
    "partition-entropy": "It is 0 if every row belongs to one cluster only, and tends to grow with K.",
}


def format_number(value: float, digits: int = 4) -> str:
    """Format a number with few digits.

    >>> [format_number(v) for v in (0.0, 1234567.0, -1234.5, 0.012345, 3.0, 1e-4, float("inf"))]
    ['0', '1,234,567', '−1,234', '0.01235', '3', '1e−4', 'infinite']
    """
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "not a number"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return use_minus_sign(f"{mantissa.removesuffix('.0')}e{int(exponent)}")
    if size >= 1000:
        return use_minus_sign(f"{value:,.0f}")
    shown = f"{value:.{digits}g}"
    return use_minus_sign(shown.rstrip("0").rstrip(".") if "." in shown else shown)


def use_minus_sign(shown: str) -> str:
    """Replace a hyphen with a minus sign."""
    return shown.replace("-", "−")


def format_by_deviation(value: float, sd: float) -> str:
    """Format a number with the decimals that matter at its column's standard deviation.

    >>> [format_by_deviation(*pair) for pair in ((-0.00154, 0.504), (131.44, 17.6), (54321.0, 9000.0), (2.5, 0.0))]
    ['−0.002', '131.4', '54,321', '2.5']
    """
    if not (sd > 0 and 1e-6 < sd < 1e9 and abs(value) < 1e12):
        return format_number(value)
    places = min(max(0, 2 - math.floor(math.log10(sd))), 8)
    return use_minus_sign(f"{value:,.{places}f}")


def format_bytes(value: int) -> str:
    """Format a number of bytes for people.

    >>> [format_bytes(n).replace(NO_BREAK_SPACE, " ") for n in (999, 41210, 5_000_000)]
    ['999 B', '41.2 kB', '5 MB']
    """
    for unit, worth in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= worth:
            return f"{value / worth:.1f}".removesuffix(".0") + f"{NO_BREAK_SPACE}{unit}"
    return f"{value}{NO_BREAK_SPACE}B"


def format_share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and an 'and'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def index_name(name: str) -> str:
    return INDEX_NAMES.get(name, name)


def column_title(facts: Mapping[str, Any]) -> str:
    """Return a column's name with its unit."""
    return f"{facts['name']} ({facts['unit']})" if facts["unit"] else str(facts["name"])


def traits(columns: Sequence[Mapping[str, Any]], z: Sequence[float]) -> str:
    """Describe what distinguishes a cluster, from its standardised centre.

    >>> traits([{"name": "spend", "type": "number"}, {"name": "visits", "type": "number"}], [1.2, -0.6])
    'high spend, rather low visits'
    """
    order = sorted(range(len(z)), key=lambda at: -abs(z[at]))
    said = [_trait(columns[at], z[at]) for at in order if abs(z[at]) >= SLIGHT_DEVIATION]
    more = f" and {len(said) - MAX_NAMED_COLUMNS} more" if len(said) > MAX_NAMED_COLUMNS else ""
    return (", ".join(said[:MAX_NAMED_COLUMNS]) + more) or "near the average in all columns"


def _trait(facts: Mapping[str, Any], z: float) -> str:
    words = ("often", "rarely") if facts["type"] == "category" else ("high", "low")
    return f"{'' if abs(z) >= STRONG_DEVIATION else 'rather '}{words[0] if z > 0 else words[1]} {facts['name']}"


def format_signed(value: float) -> str:
    """Format a standardised value with its sign.

    >>> format_signed(1.23), format_signed(-0.04), format_signed(-2.0)
    ('+1.2', '0.0', '−2.0')
    """
    shown = f"{value:+.1f}"
    return "0.0" if shown in {"+0.0", "-0.0"} else use_minus_sign(shown)


def clarity(coefficient: float, clusters: int) -> str:
    """Describe the partition coefficient in words, relative to its value for equal memberships.

    >>> clarity(0.4, 6), clarity(0.95, 3)[:22]
    ('The clusters overlap strongly: many rows belong to several of them.', 'The clusters are clear')
    """
    part = (coefficient - 1 / clusters) / (1 - 1 / clusters) if clusters > 1 else 1.0
    if part < OVERLAP_SHARE:
        return "The clusters overlap strongly: many rows belong to several of them."
    if part < CLEAR_SHARE:
        return "The clusters overlap somewhat: some rows belong to several of them."
    return "The clusters are clear: most rows belong to one of them."
