"""Who takes part in a round: everyone, or a fresh random share of the parties."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.types import PartyId


def draw_parties(
    parties: Sequence[PartyId], participation: float, rng: np.random.Generator
) -> tuple[PartyId, ...] | None:
    """A fresh random subset of the parties, or None for all of them."""
    if participation >= 1:
        return None
    count = max(1, round(participation * len(parties)))
    return tuple(parties[i] for i in sorted(rng.choice(len(parties), count, replace=False)))
