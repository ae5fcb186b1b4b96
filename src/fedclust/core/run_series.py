"""Runs that go on from one another, round after round: their names tell the series, and each one's place in it.

The first run of a series has a name of its own. A later one has that name, a number, and eight digits in front that no
other run of the series begins with: files are called by the first eight characters of a run's name.
"""

from __future__ import annotations

import hashlib

MARK = 8  # digits in front of a later run's name


def series(run: str) -> tuple[str, int]:
    """The first run of a series, and the place of this one.

    >>> series("c3d4-study"), series("0001a1b2c3d4.3-study")
    (('c3d4-study', 1), ('c3d4-study', 3))
    """
    token, dash, study = run.partition("-")
    own, _, place = token.rpartition(".")
    if len(own) <= MARK or not (place.isascii() and place.isdigit() and len(place) < 10 and int(place) > 1):
        return run, 1
    return own[MARK:] + dash + study, int(place)


def later(run: str) -> str:
    """The name of the run after this one.

    >>> series(later("a1b2-study")), series(later(later("a1b2-study")))
    (('a1b2-study', 2), ('a1b2-study', 3))
    """
    first, place = series(run)
    token, dash, study = first.partition("-")
    mark = hashlib.sha256(f"{token}.{place + 1}".encode()).hexdigest()[:MARK]
    return f"{mark}{token}.{place + 1}{dash}{study}"
