"""Numbers and facts as a reader would say them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

STRONG, SLIGHT = 1.0, 0.5  # standard deviations from the mean: high or low, rather so
NAMED = 3  # columns that a description names at most

METHODS = {
    "c-means": "c-means",
    "fuzzy-c-means": "fuzzy c-means",
    "averaged-fuzzy-c-means": "averaged fuzzy c-means",
    "gradient-fuzzy-c-means": "gradient fuzzy c-means",
    "gaussian-mixture": "a Gaussian mixture",
}
INDICES = {
    "fuzzy-davies-bouldin": "Fuzzy Davies-Bouldin",
    "davies-bouldin": "Davies-Bouldin",
    "xie-beni": "Xie-Beni",
    "calinski-harabasz": "Calinski-Harabasz",
    "simplified-silhouette": "Simplified silhouette",
    "partition-coefficient": "Partition coefficient",
    "partition-entropy": "Partition entropy",
}


def number(value: float, digits: int = 4) -> str:
    """A number in few digits.

    >>> [number(v) for v in (0.0, 1234567.0, 1234.5, 0.012345, 3.0, 1e-9, float("inf"))]
    ['0', '1,234,567', '1,234', '0.01235', '3', '1.0e-9', 'infinite']
    """
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "not a number"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-4:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "-")
    if size >= 1000:
        return f"{value:,.0f}"
    shown = f"{value:.{digits}g}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def count(value: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "site"), count(2000, "row")
    ('1 site', '2,000 rows')
    """
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def size(value: int) -> str:
    """Bytes for people.

    >>> size(999), size(41210), size(5_000_000)
    ('999 B', '41.2 kB', '5 MB')
    """
    for unit, worth in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= worth:
            return f"{value / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{value} B"


def share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


def listed(words: Sequence[str]) -> str:
    """Words with commas and an 'and'."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def index_name(name: str) -> str:
    return INDICES.get(name, name)


def column(facts: Mapping[str, Any]) -> str:
    """A column's name with its unit."""
    return f"{facts['name']} ({facts['unit']})" if facts["unit"] else str(facts["name"])


def traits(columns: Sequence[Mapping[str, Any]], z: Sequence[float]) -> str:
    """What sets a cluster apart, by its standardised centre.

    >>> traits([{"name": "spend", "type": "number"}, {"name": "visits", "type": "number"}], [1.2, -0.6])
    'high spend, rather low visits'
    """
    order = sorted(range(len(z)), key=lambda at: -abs(z[at]))
    said = [_trait(columns[at], z[at]) for at in order if abs(z[at]) >= SLIGHT]
    more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
    return (", ".join(said[:NAMED]) + more) or "near the average throughout"


def _trait(facts: Mapping[str, Any], z: float) -> str:
    words = ("often", "seldom") if facts["type"] == "category" else ("high", "low")
    return f"{'' if abs(z) >= STRONG else 'rather '}{words[0] if z > 0 else words[1]} {facts['name']}"


def signed(value: float) -> str:
    """A standardised value, with its sign.

    >>> signed(1.23), signed(-0.04), signed(-2.0)
    ('+1.2', '0.0', '−2.0')
    """
    shown = f"{value:+.1f}"
    return "0.0" if shown in {"+0.0", "-0.0"} else shown.replace("-", "−")
