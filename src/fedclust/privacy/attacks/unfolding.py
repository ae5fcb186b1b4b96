"""Attack c: distances of rows to centres, round after round, give the rows up to a turn of the space.

Squared distances, rows by centres, of all rounds side by side, centred both ways, are a product of rows and centres:

    -1/2 (d2_ij - row mean - column mean + mean) = (x_i - mean x) . (v_j - mean v)

so their singular vectors are the rows up to a linear map, of as many columns as there are. The row means fix that map
up to a turn; F + 1 known rows fix it altogether, and with it all other rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Floats, PartyId
from fedclust.privacy.attacks.transcript import Observation, Transcript

SINGULAR_VALUE_TOLERANCE = 1e-9  # singular values below this share of the largest are rounding


@dataclass(frozen=True)
class UnfoldedRows:
    """Rows as far as distances tell: `coordinates` up to a turn where `is_metric`, else up to a linear map."""

    coordinates: Floats
    is_metric: bool
    parties: tuple[PartyId, ...]


def attack_by_unfolding(transcript: Transcript) -> tuple[UnfoldedRows, ...]:
    """Rows up to a turn, from each party's distances and from the total ones."""
    matrices: dict[tuple[PartyId, ...], list[Floats]] = {}
    for parties, seen in _distance_matrices(transcript).items():
        matrices[parties] = [whole for whole in seen if whole.shape[1] == max(d.shape[1] for d in seen)]
    found = (unfold(np.concatenate(seen).T, parties) for parties, seen in matrices.items())
    return tuple(one for one in found if one is not None)


def unfold(d2: Floats, parties: tuple[PartyId, ...] = ()) -> UnfoldedRows | None:
    """Rows from squared distances, rows by centres."""
    if d2.shape[0] < 3 or d2.shape[1] < 2 or not np.isfinite(d2).all() or (d2 < 0).any():
        return None
    product = -0.5 * (d2 - d2.mean(axis=0) - d2.mean(axis=1, keepdims=True) + d2.mean())
    left, values, _ = np.linalg.svd(product, full_matrices=False)
    width = int((values > SINGULAR_VALUE_TOLERANCE * values[0]).sum()) if values[0] > 0 else 0
    if not 0 < width < min(product.shape) - 1:
        return None  # as many directions as centring leaves: nothing fits together
    left = left[:, :width] * np.sqrt(len(d2))
    shape = _metric(left, d2.mean(axis=1))
    return UnfoldedRows(left if shape is None else left @ shape, shape is not None, parties)


def _metric(left: Floats, means: Floats) -> Floats | None:
    """The linear map from row means: |x_i - mean v|^2 = z_i M z_i' + b z_i + const, with M its square."""
    n, width = left.shape
    upper = np.triu_indices(width)
    squares = left[:, upper[0]] * left[:, upper[1]] * np.where(upper[0] == upper[1], 1.0, 2.0)
    design = np.column_stack([squares, left, np.ones(n)])
    if n < design.shape[1]:
        return None
    solved = np.linalg.lstsq(design, means, rcond=None)[0]
    M = np.zeros((width, width))
    M[upper] = solved[: len(upper[0])]
    M = M + np.triu(M, 1).T
    try:
        return np.asarray(np.linalg.cholesky(M), np.float64)
    except np.linalg.LinAlgError:
        return None


def complete_rows(unfolded: UnfoldedRows, known: Floats, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """All rows, from some known ones (of at least F + 1) at places `at`."""
    Z = np.column_stack([unfolded.coordinates, np.ones(len(unfolded.coordinates))])
    return np.asarray(Z @ np.linalg.lstsq(Z[at], known, rcond=None)[0], np.float64)


def _distance_matrices(transcript: Transcript) -> dict[tuple[PartyId, ...], list[Floats]]:
    """Matrices (centres by rows) put together from the chunks they came in."""
    found: dict[tuple[PartyId, ...], list[Floats]] = {}
    open_: dict[tuple[PartyId, ...], list[Observation]] = {}
    for seen in transcript:
        if not seen.has_fields("d2") or seen.floats_of("d2").ndim != 2:
            continue
        parts = open_.setdefault(seen.parties, [])
        if parts and int(seen.asked.get("start", 0)) == 0:
            found.setdefault(seen.parties, []).append(_join_chunks(parts))
            parts.clear()
        parts.append(seen)
    for parties, parts in open_.items():
        found.setdefault(parties, []).append(_join_chunks(parts))
    return found


def _join_chunks(parts: list[Observation]) -> Floats:
    return np.concatenate([part.floats_of("d2") for part in parts], axis=1)
