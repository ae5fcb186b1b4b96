"""How many clusters the rows have, and whether any: mixtures compared by ICL, and a second look at halves of the rows.

For K = 1, 2, ... and each family of covariance, EM climbs from the centres of c-means, all together. A mixture of which
two components lie in one place (nearer than SEPARATE standard deviations) describes a heavy tail, not two clusters, and
is dropped. Of the others, K_I has the least ICL and K_B the least BIC.

1. K_I > 1 is the answer if that mixture's components come back in halves of the rows (prediction strength at least
   RETURNS). If not, they are most often pieces of groups that are no Gaussians, and the answer is the largest K up to
   K_I whose c-means clusters do come back (at least STABLE).
2. K_I = 1, but K_B > 1: clusters overlap; K_B is the answer if its c-means clusters come back (at least STABLE).
3. Else there is no structure: K = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES, MIN_COMPONENT_MASS, EvaluatedMixture, Family, Frame
from fedclust.core.effects import Protocol
from fedclust.core.types import Floats
from fedclust.questions.choice_of_k.centers_for_each_k import GrownCenters, grow_centers
from fedclust.questions.choice_of_k.prediction_strength import HALVINGS, halves

MAX_EM_ROUNDS = 25
LIKELIHOOD_TOLERANCE = 1e-6  # EM stops when a round adds less to the mean log-likelihood
MIN_SEPARATION = 0.75
MAX_COVARIANCE_NUMBERS = 2080  # numbers of a full covariance, of 64 columns, that mixtures may have
MIN_MIXTURE_STRENGTH = 0.75  # drawn Gaussians had .86 and more, pieces of other shapes .67 and less
MIN_KMEANS_STRENGTH = 0.8  # as Tibshirani and Walther advise


@dataclass(frozen=True)
class MixtureScore:
    """One mixture's criteria; `separation` is that of its two nearest components, infinite for one."""

    k: int
    family: Family
    log: float
    bic: float
    icl: float
    separation: float

    @property
    def is_dropped(self) -> bool:
        return self.separation < MIN_SEPARATION


def allows_full_covariance(columns: int, rows: int | None = None) -> bool:
    """Whether full covariances are looked at: they have not very many numbers, and no more than there are rows."""
    numbers = columns * (columns + 1) // 2
    return numbers <= MAX_COVARIANCE_NUMBERS and (rows is None or numbers <= rows)


def max_message_numbers(columns: int, ks: Sequence[int]) -> tuple[int, int]:
    """How many numbers the longest question and the longest answer of a choice hold at most."""
    most, all_of, parts = max(ks), sum({1, *ks}), 2 * HALVINGS
    square = columns * columns if allows_full_covariance(columns) else 0
    places = parts * (3 * most + most * most // 2)  # of new centres in every half
    tables = parts * sum(k * k for k in {1, *ks})
    asked = columns * (2 * parts * all_of + places) + 2 * parts * square + 200 * (len(ks) + parts)
    return asked, max(8 * columns * all_of + 16 * all_of, places * (columns + 1), tables, square)


@dataclass(frozen=True)
class KChoice:
    """The number of clusters, and c-means centres for each K that was looked at.

    `why` is the step that decided: "icl", "halves", "bic" or "none"; `strength` the prediction strength it turned on,
    `strengths` those of c-means by K where they were asked for; `empty` whether a half had no rows.
    """

    k: int
    why: str
    k_icl: int
    k_bic: int
    strength: float | None
    strengths: dict[int, float]
    scores: tuple[MixtureScore, ...]
    centers: tuple[GrownCenters, ...]
    empty: bool = False


def separation(evaluated: EvaluatedMixture) -> float:
    """The least |m_i - m_j| / sqrt((v_i + v_j) / 2), v a mean squared radius per column; 0 with an empty component."""
    means, v = evaluated.mixture.means, evaluated.radii
    if (evaluated.mass < MIN_COMPONENT_MASS).any():
        return 0.0
    i, j = np.triu_indices(len(means), 1)
    if not len(i):
        return math.inf
    apart = np.sqrt(((means[i] - means[j]) ** 2).sum(axis=1))
    wide = np.sqrt((v[i] + v[j]) / 2)
    return float((apart / np.where(wide > 0, wide, 1e-300)).min())


def evaluate(frame: Frame, centers: Sequence[Floats]) -> Protocol[list[EvaluatedMixture]]:
    """The mixtures of every family that EM finds from each set of centres."""
    families = [f for f in FAMILIES if f != "EEE" or frame.root is not None]
    starts = yield from mixture.start_mixtures(frame, families, centers)
    return (
        yield from mixture.run_em(
            frame, [m for row in starts for m in row], tol=LIKELIHOOD_TOLERANCE, max_iter=MAX_EM_ROUNDS
        )
    )


def score(evaluated: EvaluatedMixture, rows: int) -> MixtureScore:
    """The criteria of one mixture."""
    bic, icl = mixture.bic(evaluated, rows), mixture.icl(evaluated, rows)
    return MixtureScore(len(evaluated.mass), evaluated.mixture.family, evaluated.log, bic, icl, separation(evaluated))


def choose_k(
    frame: Frame, max_clusters: int, *, ks: Sequence[int] | None = None, wider: Callable[[int], int] | None = None
) -> Protocol[KChoice]:
    """Look at K = 1, ..., most, or at 1 and some of the others; further, if `wider` allows, while ICL falls."""
    while True:
        ((*grown,),) = yield from grow_centers(frame, max_clusters)
        some = range(1, max_clusters + 1) if ks is None else sorted({1, *ks})
        found = yield from evaluate(frame, [grown[k - 1].centers for k in some])
        # Where nobody may see that there are too few rows for full covariances, they are asked for and not looked at.
        found = [e for e in found if e.mixture.family != "EEE" or allows_full_covariance(len(frame.reach), frame.rows)]
        scores = [score(e, frame.rows) for e in found]
        best, k_bic = best_score(scores, "icl"), best_score(scores, "bic").k
        if best.k < max_clusters or wider is None or wider(max_clusters) == max_clusters:
            break
        max_clusters = wider(max_clusters)
    k, why, strong, strengths, empty = 1, "none", None, dict[int, float](), False
    if best.k > 1:
        halved = yield from halves(frame, best.k)
        empty = halved.has_empty_half
        means = found[scores.index(best)].mixture.means
        strong = yield from halved.strength_of_mixture(
            means, best.family, tol=LIKELIHOOD_TOLERANCE, max_iter=MAX_EM_ROUNDS
        )
        k, why = best.k, "icl"
        if strong < MIN_MIXTURE_STRENGTH:
            fewer = [n for n in some if 1 < n <= best.k]
            strengths = dict(zip(fewer, (yield from halved.strengths(fewer)), strict=True))
            k, why = max((n for n, s in strengths.items() if s >= MIN_KMEANS_STRENGTH), default=1), "halves"
    elif k_bic > 1:
        halved = yield from halves(frame, k_bic)
        empty = halved.has_empty_half
        (strong,) = yield from halved.strengths([k_bic])
        k, why = (k_bic, "bic") if strong >= MIN_KMEANS_STRENGTH else (1, "none")
    return KChoice(k, why if k > 1 else "none", best.k, k_bic, strong, strengths, tuple(scores), tuple(grown), empty)


def best_score(scores: Sequence[MixtureScore], criterion: str) -> MixtureScore:
    """The least by a criterion among mixtures that were not dropped; of equals the one with fewer components."""
    kept = [s for s in scores if not s.is_dropped]
    return min(kept, key=lambda s: (getattr(s, criterion), s.k))
