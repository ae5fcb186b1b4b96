"""Runs that go on from one another, round after round: their names tell the series, and each one's place in it.

The first run of a series has a name of its own. A later one has that name, a number, and eight digits in front that no
other run of the series begins with: files are called by the first eight characters of a run's name.
"""

from __future__ import annotations

import hashlib

SERIES_MARK_DIGITS = 8  # digits in front of a later run's name


def parse_series(run: str) -> tuple[str, int]:
    """The first run of a series, and the place of this one.

    >>> parse_series("c3d4-study"), parse_series("0001a1b2c3d4.3-study")
    (('c3d4-study', 1), ('c3d4-study', 3))
    """
    token, dash, study = run.partition("-")
    own, _, place = token.rpartition(".")
    if len(own) <= SERIES_MARK_DIGITS or not (
        place.isascii() and place.isdigit() and len(place) < 10 and int(place) > 1
    ):
        return run, 1
    return own[SERIES_MARK_DIGITS:] + dash + study, int(place)


def next_run_name(run: str) -> str:
    """The name of the run after this one.

    >>> parse_series(next_run_name("a1b2-study")), parse_series(next_run_name(next_run_name("a1b2-study")))
    (('a1b2-study', 2), ('a1b2-study', 3))
    """
    first, place = parse_series(run)
    token, dash, study = first.partition("-")
    mark = hashlib.sha256(f"{token}.{place + 1}".encode()).hexdigest()[:SERIES_MARK_DIGITS]
    return f"{mark}{token}.{place + 1}{dash}{study}"
