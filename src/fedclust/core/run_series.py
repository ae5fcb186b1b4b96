"""Runs that continue one another, round after round: their names give the series and the position in it.

The first run of a series has its own name. A later run has that name, a number, and a prefix of eight digits that no
other run of the series has. The prefix is needed because files are named after the first eight characters of a run's
name.
"""

from __future__ import annotations

import hashlib

SERIES_MARK_DIGITS = 8  # digits at the start of a later run's name


def parse_series(run: str) -> tuple[str, int]:
    """Return the first run of a series, and the position of this run in it.

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


def previous_run_name(run: str) -> str:
    """Return the name of the run before this one in its series; the first run has none before it.

    >>> previous_run_name(next_run_name("a1b2-study"))
    'a1b2-study'
    """
    name, place = parse_series(run)
    for _ in range(place - 2):
        name = next_run_name(name)
    return name


def next_run_name(run: str) -> str:
    """Return the name of the run after this one.

    >>> parse_series(next_run_name("a1b2-study")), parse_series(next_run_name(next_run_name("a1b2-study")))
    (('a1b2-study', 2), ('a1b2-study', 3))
    """
    first, place = parse_series(run)
    token, dash, study = first.partition("-")
    mark = hashlib.sha256(f"{token}.{place + 1}".encode()).hexdigest()[:SERIES_MARK_DIGITS]
    return f"{mark}{token}.{place + 1}{dash}{study}"
