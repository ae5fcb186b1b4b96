"""Sums over rows that no order of rows, blocks, threads or parties can change: each term becomes an integer first.

A term t is rounded once, half to even, to a multiple of 2^unit, |t| <= 2^(unit + 51); the integers add in 128 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedclust.core.types import Array, Floats, Limbs, Units
from fedclust.kernels import _backend, _threads

Blocks = Array | Sequence[Array]

HARD, FUZZY = 0, 1
MIN_SHARED_ADDITIONS = 1 << 21  # additions below which waking another thread costs more than it saves


@dataclass(slots=True)
class Sums:
    """Mass sum w (C), pull sum w x (C, F) and objective of one sweep, two limbs each, with their units.

    >>> sums = Sums.zeros(mass_unit=np.full(1, -51), pull_unit=np.full((1, 2), -40), objective_unit=-40)
    >>> sums.pull.shape
    (1, 2, 2)
    """

    mass: Limbs
    pull: Limbs
    objective: Limbs
    mass_unit: Units
    pull_unit: Units
    objective_unit: int

    @classmethod
    def zeros(cls, mass_unit: Array, pull_unit: Array, objective_unit: int) -> Self:
        clusters, features = pull_unit.shape
        return cls(
            np.zeros((clusters, 2), np.uint64),
            np.zeros((clusters, features, 2), np.uint64),
            np.zeros(2, np.uint64),
            np.ascontiguousarray(mass_unit, np.int32),
            np.ascontiguousarray(pull_unit, np.int32),
            int(objective_unit),
        )

    def add(self, other: Sums) -> None:
        """Add sums of other rows in the same units."""
        add_in_place(self.mass, other.mass)
        add_in_place(self.pull, other.pull)
        add_in_place(self.objective, other.objective)

    def zeros_like(self) -> Self:
        """Zeros in the same units."""
        return self.zeros(self.mass_unit, self.pull_unit, self.objective_unit)


def add_in_place(to: Limbs, limbs: Limbs) -> None:
    """Add limbs to others in place, with carry."""
    to[..., 0] += limbs[..., 0]
    to[..., 1] += limbs[..., 1] + (to[..., 0] < limbs[..., 0])


def sweep(rule: int, sums: Sums, blocks: Blocks, centers: Floats, m: float) -> None:
    """Add the rows of one block, or of many, to the sums under a rule of weighting."""
    listed: Sequence[Array] = [blocks] if isinstance(blocks, np.ndarray) else blocks
    centers = np.ascontiguousarray(centers, np.float64)

    def sweep_into(into: Sums, some: Sequence[Array]) -> None:
        _backend.active.sweep(
            rule,
            some,
            centers,
            m,
            into.mass,
            into.pull,
            into.objective,
            into.mass_unit,
            into.pull_unit,
            into.objective_unit,
        )

    if not is_worth_sharing(listed, centers):
        sweep_into(sums, listed)
        return

    def sum_pieces(pieces: Iterator[list[Array]]) -> Sums:
        own = sums.zeros_like()
        for piece in pieces:
            sweep_into(own, piece)
        return own

    for part in _threads.run_in_threads(cut_into_pieces(listed), sum_pieces):
        sums.add(part)


def add_weighted(sums: Sums, block: Array, weights: Array) -> None:
    """Mass and pull of a block under given weights (C, n); the objective is not touched.

    mass_c += sum_i w_ci, pull_cf += sum_i w_ci x_fi.
    """

    def add_rows(into: Sums, rows: slice) -> None:
        _backend.active.weighted(block[:, rows], weights[:, rows], into.mass, into.pull, into.mass_unit, into.pull_unit)

    if _threads.threads() == 1 or block.size * len(weights) < MIN_SHARED_ADDITIONS:
        add_rows(sums, slice(None))
        return

    def sum_pieces(pieces: Iterator[slice]) -> Sums:
        own = sums.zeros_like()
        for rows in pieces:
            add_rows(own, rows)
        return own

    for part in _threads.run_in_threads(_threads.ranges(block.shape[1], 256), sum_pieces):
        sums.add(part)


def exact_totals(values: Array, unit: int | Array) -> Limbs:
    """The exact sum of each row of values (k, n) in its unit: (k, 2) limbs.

    >>> exact_totals(np.array([[0.25, 0.5]]), unit=-2).tolist()
    [[3, 0]]
    """
    out = np.zeros((len(values), 2), np.uint64)
    units = np.ascontiguousarray(np.broadcast_to(np.asarray(unit, np.int32), len(values)))
    _backend.active.totals(values, units, out)
    return out


def is_worth_sharing(blocks: Sequence[Array], centers: Floats) -> bool:
    """Whether there is work for a second thread."""
    if _threads.threads() == 1:
        return False
    additions = count_rows(blocks) * len(centers) * (centers.shape[1] + 8)
    return bool(additions > MIN_SHARED_ADDITIONS)


def count_rows(blocks: Sequence[Array]) -> int:
    return sum([block.shape[1] for block in blocks])


def cut_into_pieces(blocks: Sequence[Array]) -> list[list[Array]]:
    """Lists of whole blocks or parts of one, of about equal rows, a few for each thread."""
    share = max(-(-count_rows(blocks) // (_threads.threads() * _threads.PIECES_PER_THREAD)), 256)
    pieces: list[list[Array]] = []
    piece: list[Array] = []
    held = 0
    for block in blocks:
        rows = block.shape[1]
        parts = [block] if rows <= 2 * share else [block[:, at : at + share] for at in range(0, rows, share)]
        for part in parts:
            piece.append(part)
            held += part.shape[1]
            if held >= share:
                pieces.append(piece)
                piece, held = [], 0
    if piece:
        pieces.append(piece)
    return pieces
