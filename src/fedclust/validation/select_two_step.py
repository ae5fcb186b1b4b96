"""How many clusters the rows have, and whether any: mixtures compared by ICL, then by BIC where a second look agrees.

For K = 1, 2, ... and each family of covariance, EM climbs from the centres of c-means, all together. A mixture of which
two components lie in one place (nearer than SEPARATE standard deviations) describes a heavy tail, not two clusters, and
is dropped. Of the others, K_I has the least ICL and K_B the least BIC. K_I > 1 is the answer; else K_B > 1 if its
clusters come back in halves of the rows (prediction strength at least STRONG); else there is no structure: K = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms import mixture
from fedclust.algorithms.mixture import FAMILIES, TINY, Evaluated, Family, Frame
from fedclust.core.protocol import Protocol
from fedclust.core.types import Floats
from fedclust.validation.select_centers import Grown, grow
from fedclust.validation.strength import prediction_strength

ROUNDS = 25
LEVEL = 1e-6  # EM stops when a round adds less to the mean log-likelihood
SEPARATE = 0.75
STRONG = 0.7


@dataclass(frozen=True)
class Score:
    """One mixture's criteria; `separation` is that of its two nearest components, infinite for one."""

    k: int
    family: Family
    log: float
    bic: float
    icl: float
    separation: float

    @property
    def dropped(self) -> bool:
        return self.separation < SEPARATE


@dataclass(frozen=True)
class Choice:
    """The number of clusters, why, and c-means centres for each K that was looked at."""

    k: int
    k_icl: int
    k_bic: int
    strength: float | None
    scores: tuple[Score, ...]
    centers: tuple[Grown, ...]

    @property
    def why(self) -> str:
        """Which step decided: icl, bic or none."""
        return "icl" if self.k_icl > 1 else "bic" if self.k > 1 else "none"


def separation(of: Evaluated) -> float:
    """The least |m_i - m_j| / sqrt((v_i + v_j) / 2), v a mean squared radius per column; 0 with an empty component."""
    means, v = of.mixture.means, of.radii
    if (of.mass < TINY).any():
        return 0.0
    i, j = np.triu_indices(len(means), 1)
    if not len(i):
        return math.inf
    apart = np.sqrt(((means[i] - means[j]) ** 2).sum(axis=1))
    wide = np.sqrt((v[i] + v[j]) / 2)
    return float((apart / np.where(wide > 0, wide, 1e-300)).min())


def evaluate(of: Frame, centers: Sequence[Floats]) -> Protocol[list[Score]]:
    """The criteria of every family from each set of centres."""
    families = [f for f in FAMILIES if f != "EEE" or of.root is not None]
    starts = yield from mixture.start(of, families, centers)
    found = yield from mixture.climb(of, [m for row in starts for m in row], tol=LEVEL, max_rounds=ROUNDS)
    return [
        Score(len(e.mass), e.mixture.family, e.log, mixture.bic(e, of.rows), mixture.icl(e, of.rows), separation(e))
        for e in found
    ]


def choose(of: Frame, most: int, *, ks: Sequence[int] | None = None, seed: int = 0) -> Protocol[Choice]:
    """Look at K = 1, ..., most, or at 1 and some of the others."""
    ((*grown,),) = yield from grow(of, most, seed=seed)
    scores = yield from evaluate(of, [one.centers for one in grown if ks is None or len(one.centers) in {1, *ks}])
    k_icl, k_bic = least(scores, "icl"), least(scores, "bic")
    if k_icl > 1 or k_bic == 1:
        return Choice(k_icl, k_icl, k_bic, None, tuple(scores), tuple(grown))
    strong = yield from prediction_strength(of, k_bic, seed=seed)
    return Choice(k_bic if strong >= STRONG else 1, k_icl, k_bic, strong, tuple(scores), tuple(grown))


def least(scores: Sequence[Score], criterion: str) -> int:
    """The K of the least criterion among mixtures that were not dropped; the smallest of equals."""
    kept = [s for s in scores if not s.dropped]
    return min(kept, key=lambda s: (getattr(s, criterion), s.k)).k
