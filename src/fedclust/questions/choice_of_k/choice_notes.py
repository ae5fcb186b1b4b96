"""Notes on a choice of K: no structure, shapes, how sure it is, close rivals, a choice at the edge, flat curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.questions.choice_of_k.choice import KChoice

EDGE_NOTE = "The choice is the largest candidate K. To check it, include values above {k}."
INDEX_TOLERANCE = 0.01  # of the chosen index; a smaller difference counts as equal
FLAT_CURVE_FRACTION = 0.05  # of the largest
CLEAR_MARGIN = 6.0  # by which the evidence for the number of components exceeds that for any other number
MIN_FLOORS_PER_GROUP = 6  # with fewer rows in each group on average, cells above a floor are too coarse to be sure
MIN_ROWS = 10  # with fewer rows no choice is sure


def drop_large_candidates(ks: Sequence[int], rows: int) -> tuple[list[int], list[str]]:
    """Return the candidates that do not exceed the number of rows, and a note on the others."""
    kept, left = [k for k in ks if k <= rows], [str(k) for k in ks if k > rows]
    if not kept:
        raise DataError(f"n_samples={rows} is fewer than n_clusters={ks[0]}; ask for fewer clusters")
    note = f"The table has only {count_noun(rows, 'row')}, so K = {', '.join(left)} was not tried."
    return kept, [note] if left else []


def choose_candidate(found: KChoice, ks: Sequence[int] | None) -> tuple[int, list[str]]:
    """The choice, or the best candidate by evidence if the choice is not among the candidates."""
    if ks is None or found.k in ks:
        return found.k, []
    known = [k for k in ks if k in found.curve]
    if not known:
        k = min(ks, key=lambda n: (abs(n - found.k), n))
        return k, [
            f"Without limits K would be {found.k}. {k} is the nearest candidate; it was not compared with others."
        ]
    k = max(known, key=lambda n: found.curve[n][0])
    return k, [f"Without limits K would be {found.k}. Of the candidates, {k} has the most evidence."]


def how_sure(found: KChoice, taken: int | None = None) -> tuple[str, str]:
    """How sure the choice is, in a word and in a sentence; `taken` is the K that candidates allow."""
    if taken not in (None, found.k):
        return "unsure", f"Unsure: K = {taken} is among the candidates, but the rows suggest {found.k}."
    if found.rows < MIN_ROWS:
        return "unsure", f"Unsure: the table has only {count_noun(found.rows, 'row')}."
    if found.floor > 1 and found.rows < MIN_FLOORS_PER_GROUP * found.floor * found.evidence:
        return "unsure", (
            f"Unsure: sums of fewer than {found.floor} rows are not opened, which is too coarse for "
            f"{count_noun(found.rows, 'row')}. "
            "Small groups may have been missed."
        )
    if found.has_few_values and found.k == 1:
        return "unsure", (
            "Unsure: the only column has two values, or values in very wide steps. It counts as a category, so "
            "distances do not say whether equal values are a group."
        )
    counts = {found.mild, found.strict, found.evidence}
    rival, margin = _nearest_rival(found)
    if found.verdict == "not round":
        return "unsure", (
            f"Unsure: groups are not round, so {found.k} is only a number of pieces between which there are few rows."
        )
    if len(counts) == 1 and found.verdict == "groups" and margin < CLEAR_MARGIN:
        return "unsure", (
            f"Unsure: {found.k} by evidence and by valleys, but there is nearly as much evidence for "
            f"{count_noun(rival, 'component')}."
        )
    if len(counts) == 1:
        return "clear", f"Clear: {found.k} by evidence, and {found.k} by valleys at the mild and at the strict limit."
    if found.k == 1:
        return "likely", (
            f"Likely: the rows have {count_noun(found.evidence, 'component')} by evidence, but no valley "
            "that chance could not make lies between them."
        )
    if found.mild == found.strict:
        return "likely", (
            f"Likely: {found.k} by valleys at the mild and at the strict limit, but {found.evidence} by evidence."
        )
    return "unsure", (
        f"Unsure: {found.mild} by valleys at the mild limit, {found.strict} at the strict limit, and {found.evidence} "
        "by evidence."
    )


def _nearest_rival(found: KChoice) -> tuple[int, float]:
    """The number of components with the most evidence next to the one that was found, and how much less it has."""
    others = {n: value for n, (value, _) in found.curve.items() if n != found.evidence}
    if not others:
        return found.evidence, np.inf
    rival = max(others, key=lambda n: others[n])
    return rival, found.curve[found.evidence][0] - others[rival]


def choice_notes(found: KChoice, columns: int, floor: int) -> list[str]:
    """Notes on a choice by evidence and valleys."""
    notes = []
    if found.verdict == "none":
        notes.append("No structure found: the rows form one group.")
        if found.evidence > 1:
            notes.append(
                f"A mixture of {found.evidence} components describes the rows better than one, as happens with skewed "
                "columns and heavy tails, but no valley separates these components."
            )
    if found.verdict == "not round":
        notes.append(
            "The groups are not round: some are bent or hollow, as moons and rings are. Centres describe such groups "
            "badly, and methods that look for round clusters cut them into pieces."
        )
    if found.verdict == "groups" and found.evidence > found.k:
        notes.append(
            f"By evidence there are {found.evidence} components. Those with no valley between them count as one group, "
            "as happens if groups are not normal."
        )
    if found.is_sample:
        notes.append(f"K was chosen from a public sample of {count_noun(found.rows, 'row')}.")
    if found.unused_columns:
        used = columns - found.unused_columns
        notes.append(f"K was chosen from {used} of the {columns} columns, those that are least normal.")
    if floor > 1:
        notes.append(
            f"K was chosen without opening sums of fewer than {floor} rows, so it is less certain than otherwise."
        )
    return notes


def score_rows(found: KChoice, k: int, ks: Sequence[int] | None) -> list[dict[str, Any]]:
    """One row for each candidate with evidence: the most that any partition into so many components has."""
    return [
        {"k": n, "family": shape, "evidence": value, "chosen": n == k}
        for n, (value, shape) in found.curve.items()
        if ks is None or n in ks
    ]


def index_notes(values: Mapping[int, float], k: int, *, given: bool, elbow: bool) -> list[str]:
    """Notes on a choice by an index; smaller `values` are better."""
    finite = {n: v for n, v in values.items() if np.isfinite(v)}
    notes = [
        f"The index is infinite at K = {', '.join(map(str, some))}: {why}."
        for why, some in (
            ("centres coincide", sorted(n for n, v in values.items() if v == np.inf)),
            ("every row equals its centre", sorted(n for n, v in values.items() if v == -np.inf)),
        )
        if some
    ]
    size = max((abs(v) for v in finite.values()), default=0.0)
    if len(finite) > 1 and max(finite.values()) - min(finite.values()) < FLAT_CURVE_FRACTION * size:
        notes.append("The index hardly depends on K, so the choice means little.")
    level = INDEX_TOLERANCE * abs(values[k]) if k in finite else 0.0
    near = sorted(n for n, v in finite.items() if n != k and abs(v - values[k]) <= level)
    if near and not elbow:
        notes.append(f"These K are almost as good as {k}: {', '.join(map(str, near))}.")
    if given and k == max(values):
        notes.append(EDGE_NOTE.format(k=k))
    return notes
