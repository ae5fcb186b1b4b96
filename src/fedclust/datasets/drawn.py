"""Synthetic data sets drawn from a formula and a seed, with their true centres."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import StudyError

if TYPE_CHECKING:
    from collections.abc import Iterable

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


class SyntheticData(NamedTuple):
    """Rows, the cluster each was drawn from, and the clusters' true centres."""

    X: Floats
    y: Labels
    centers: Floats


class Truth(NamedTuple):
    """The true centres, and for each site the cluster of each of its rows."""

    centers: Floats
    labels: dict[str, Labels]


# Paper 2, section 3.2.1. Its text swaps the last two of the big clusters: only with the two clusters of 1,000 points
# next to each other do the figures of its Table 1 come out.
MOTIVATIONAL_CENTERS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5))
MOTIVATIONAL_SPREADS = (0.2, 0.2, 0.2, 0.2, 0.01)
MOTIVATIONAL_CLIENTS = {  # rows of each cluster
    "client-1": (500, 500, 0, 0, 40),
    "client-2": (0, 500, 0, 500, 40),
    "client-3": (0, 0, 500, 500, 40),
}


def motivational(seed: int = 0) -> tuple[dict[str, Floats], Truth]:
    """Draw paper 2's motivational example: three clients that each see two clusters, but together hold five.

    >>> parties, truth = motivational()
    >>> {party: rows.shape for party, rows in parties.items()}
    {'client-1': (1040, 2), 'client-2': (1040, 2), 'client-3': (1040, 2)}
    """
    rng = np.random.default_rng(seed)
    centers = np.array(MOTIVATIONAL_CENTERS)
    labels = {party: np.repeat(np.arange(5), counts) for party, counts in MOTIVATIONAL_CLIENTS.items()}
    spread = np.array(MOTIVATIONAL_SPREADS)
    parties = {party: rng.normal(centers[y], spread[y, None]) for party, y in labels.items()}
    return parties, Truth(centers, labels)


def g2(sd: float, dim: int, seed: int = 0) -> SyntheticData:
    """Draw one of paper 2's G2 sets: 1,024 points around (500, 500, ...), 1,024 around (600, 600, ...)."""
    return _draw_around(np.array([[500.0], [600.0]]).repeat(dim, axis=1), (1024, 1024), sd, np.random.default_rng(seed))


def mixture(k: int, dim: int, rows: int, seed: int = 0, *, separation: float = 6.0) -> SyntheticData:
    """Draw `rows` points from k unit Gaussians of equal size whose two nearest centres lie `separation` apart."""
    if k < 1 or rows < k:
        raise StudyError(
            f"{count_noun(rows, 'row is', 'rows are')} too few for {count_noun(k, 'cluster')}; choose k "
            "from 1 to the number of rows"
        )
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, dim))
    if k > 1:
        centers *= separation / pdist(centers).min()
    drawn = _draw_around(centers, [len(part) for part in np.array_split(np.arange(rows), k)], 1.0, rng)
    order = rng.permutation(rows)
    return SyntheticData(drawn.X[order], drawn.y[order], centers)


def _draw_around(centers: Floats, counts: Iterable[int], sd: float, rng: np.random.Generator) -> SyntheticData:
    y = np.repeat(np.arange(len(centers)), list(counts))
    return SyntheticData(rng.normal(centers[y], sd), y, centers)
