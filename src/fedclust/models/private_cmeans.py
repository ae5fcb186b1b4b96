"""The estimators of k-means and fuzzy c-means under differential privacy: centres from noisy sums, and their cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.private_kmeans import private_fit
from fedclust.algorithms.private_kmeans.private_fit import PrivateResult
from fedclust.algorithms.private_kmeans.private_questions import Box
from fedclust.core.effects import Protocol
from fedclust.core.noise_price import count_honest_sites
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.federation.federation import MAX_MAGNITUDE, Federation, parse_bounds
from fedclust.kernels.normal_draws import draw_normals
from fedclust.models.assignment import CentersModel, FuzzyCentersModel
from fedclust.models.base import PrivacyPart
from fedclust.models.cmeans import MAX_FUZZINESS
from fedclust.models.input_checks import is_real_number, is_whole_number, require
from fedclust.privacy import accountant
from fedclust.questions import schema

PRIVATE_VARIANTS = ("projected", "lloyd")
PRIVATE_SCALES = ("none", "minmax")
MAX_PRIVATE_CLUSTERS = 64  # a histogram of 512 cells shows no more


class _PrivateEstimator(CentersModel):
    """What both share: the box, the budget and the notes on the guarantee; `fuzziness` is 1 for hard c-means."""

    lossless: ClassVar[bool] = False
    saved_attributes: ClassVar[tuple[str, ...]] = (
        "cluster_centers_",
        "scaled_centers_",
        "initial_centers_",
        "n_iter_",
        "history_",
        "cluster_sizes_",
        "cluster_width_",
        "n_rows_",
        "n_clusters_",
        "origin_",
        "spread_",
        "epsilon_",
        "reported_epsilon_",
        "prices_",
        "honest_",
    )

    n_clusters: Any
    epsilon: float
    delta: float
    bounds: Any
    scale: str
    variant: str
    rounds: int | None
    missing = "drop"  # rows with missing values have no label; sites always leave them out
    participation = 1.0

    def protocol(self, fed: Federation) -> Protocol[tuple[PrivateResult, Box]]:
        self._check_parameters(fed)
        return self._fit_script(fed)

    def _fit_script(self, fed: Federation) -> Protocol[tuple[PrivateResult, Box]]:
        box, rng = self._public_box(fed), np.random.default_rng((self.seed_, 3))
        if fed.declared_schemas:
            yield from schema.check_declarations(fed.declared_schemas, "drop")
        spending = self._plan_spending(fed)
        if self.variant == "lloyd":
            return (
                yield from private_fit.lloyd(
                    box, self._candidate_ks[0], spending, rng, self.rounds or private_fit.LLOYD_ROUNDS
                )
            ), box
        return (yield from private_fit.fit(box, self._candidate_ks, spending, rng, self.fuzziness)), box

    def _plan_spending(self, fed: Federation) -> private_fit.Spending:
        """Plan the spending; in plain mode the coordinator sees each answer, so each site adds the full noise."""
        sites = len(fed.parties)
        relied_on = 1 if fed.aggregation.mode == "plain" else count_honest_sites(sites, sites)
        return private_fit.Spending(
            accountant.rho_from_epsilon(float(self.epsilon), float(self.delta)), relied_on, fed.parties
        )

    def _public_box(self, fed: Federation) -> Box:
        found = parse_bounds(self.bounds, len(fed.columns))
        require(found is not None, "differential privacy needs public bounds of every column; set bounds")
        low, high = found  # type: ignore[misc]
        half = (high - low) / 2
        return Box(low, high, np.where(half > 0, half, 1.0) if self.scale == "minmax" else np.ones(len(low)))

    @property
    def _candidate_ks(self) -> tuple[int, ...]:
        """Return the numbers of clusters to choose from."""
        given = self.n_clusters
        if is_whole_number(given):
            return (int(given),)
        ends = [*given] if isinstance(given, (Sequence, range)) and not isinstance(given, str) else []
        sound = len(ends) >= 2 and all(map(is_whole_number, ends)) and ends[0] < ends[-1]
        require(sound, f"n_clusters is {given!r}; it must be a whole number, or a range such as (2, 8)")
        return tuple(range(int(ends[0]), int(ends[-1]) + 1))

    def store_result(self, fed: Federation, result: tuple[PrivateResult, Box]) -> None:
        found, box = result
        if self.scale == "minmax":
            self.origin_, self.spread_ = box.middle, box.unit
        else:
            self.origin_ = self.spread_ = None
        view = View(np.zeros(len(box.low), np.int32), self.origin_, self.spread_)
        self.cluster_centers_ = box.to_original_units(found.centers)
        self.initial_centers_ = box.to_original_units(found.start)
        self.scaled_centers_ = view.transform_points(self.cluster_centers_)
        self.cluster_sizes_ = found.mass
        self.cluster_width_ = found.width
        self.n_clusters_ = len(found.centers)
        self.n_rows_ = found.rows
        self.n_iter_ = len(found.history)
        self.history_ = [{"round": r.number, "shift": r.shift, "objective": None} for r in found.history]
        self.prices_ = list(found.prices)
        self.honest_ = self._plan_spending(fed).honest
        self.epsilon_ = accountant.epsilon_from_rho(math.fsum(found.prices), self.delta)
        self.reported_epsilon_ = accountant.reported_epsilon(found.prices, self.delta)
        self.notes_ = [*found.notes, *self._privacy_notes(fed)]
        if fed.site_data and all(own_data.source.resident for own_data in fed.site_data.values()):
            blocks = [block for held in fed.site_data.values() for block in self._view_blocks(held)]
            self.labels_ = np.concatenate([self.labels_in_view(block) for block in blocks])

    @property
    def privacy_part(self) -> PrivacyPart:
        return PrivacyPart(
            self.epsilon,
            self.delta,
            self.epsilon_,
            self.reported_epsilon_,
            self.prices_,
            self.honest_,
            self.n_rows_,
            self.cluster_width_,
        )

    def _privacy_notes(self, fed: Federation) -> list[str]:
        """Notes on what the result guarantees, and under which conditions."""
        notes = [
            (
                "Not lossless: the sums carry noise. They give differential privacy for single rows: epsilon = "
                f"{self.epsilon:g} at delta = {self.delta:g} "
                f"({self.reported_epsilon_:.3g} when computed from the privacy loss distribution)."
            ),
            accountant.meaning(self.epsilon, self.delta),
        ]
        if fed.aggregation.mode == "plain":
            notes.append("Each site added the full noise, because the coordinator sees each site's sums.")
        else:
            notes.append(
                f"The guarantee holds if at least {self.honest_} of {len(fed.parties)} sites keep their noise secret."
            )
        return [
            *notes,
            *filter(None, [accountant.warning(self.epsilon), accountant.delta_warning(self.delta, self.n_rows_)]),
        ]

    def _check_parameters(self, fed: Federation) -> None:
        require(fed.split == "rows", "differential privacy does not support column splits; use a row split")
        require(
            min(self._candidate_ks) >= 1 and max(self._candidate_ks) <= MAX_PRIVATE_CLUSTERS,
            f"n_clusters is {self.n_clusters!r}; it must be from 1 to {MAX_PRIVATE_CLUSTERS}",
        )
        require(
            is_real_number(self.epsilon) and 0 < self.epsilon <= 1000,
            f"epsilon is {self.epsilon!r}; it must be a number above 0, such as 1.0",
        )
        require(
            is_real_number(self.delta) and 0 < self.delta <= accountant.MAX_DELTA,
            f"delta is {self.delta!r}; it must be a number above 0, at most {accountant.MAX_DELTA:g} and far below "
            "1 / (number of rows), such as 1e-6",
        )
        require(
            self.scale in PRIVATE_SCALES,
            f"scale is '{self.scale}'; under differential privacy choose one of {', '.join(PRIVATE_SCALES)}, "
            "because other scales would spend privacy budget",
        )
        require(
            self.variant in PRIVATE_VARIANTS,
            f"the parameter 'variant' is '{self.variant}'; choose one of {', '.join(PRIVATE_VARIANTS)}",
        )
        require(
            self.rounds is None or (is_whole_number(self.rounds) and self.rounds >= 1 and self.variant == "lloyd"),
            f"the parameter 'rounds' is {self.rounds!r}; it must be a whole number of at least 1, and it works only "
            "with variant='lloyd'",
        )
        require(
            self.variant != "lloyd" or len(self._candidate_ks) == 1,
            "variant='lloyd' cannot choose the number of clusters; give a single number",
        )
        box = self._public_box(fed)
        require(bool((np.abs(np.concatenate([box.low, box.high])) <= MAX_MAGNITUDE).all()), "bounds must be finite")
        self.fuzziness  # noqa: B018 refuses a wrong fuzziness before any question is asked


class PrivateKMeans(_PrivateEstimator):
    """k-means (hard c-means) under differential privacy for single rows.

    Parameters
    ----------
    n_clusters : int or pair, default=8
        Number of clusters, or a range such as (2, 8), from which the number is chosen by noisy counts.
    epsilon, delta : float, default=1.0 and 1e-6
        The privacy budget: how much the whole run may reveal about any single row.
    bounds : pair or list of pairs
        Public limits of the columns; values outside are clipped. Never take them from the data.
    scale : {"none", "minmax"}, default="none"
        How to scale the columns. "minmax" uses the bounds.
    variant : {"projected", "lloyd"}, default="projected"
        "projected" uses principal axes, a histogram and relative rounds. "lloyd" is plain DP-Lloyd, for comparison.
    rounds : int or None, default=None
        Number of iterations of "lloyd".
    random_state : int, NumPy generator or None, default=0
        Seed of all random draws except the noise.

    Attributes
    ----------
    cluster_sizes_, n_rows_, cluster_width_ : array, float, float
        Estimates of the sizes of the clusters, the number of rows and the width of a cluster, from noisy sums.
    epsilon_ : float
        Epsilon that was spent, as the sites enforce it.
    reported_epsilon_ : float
        Epsilon that was spent, computed from the privacy loss distribution.
    prices_ : list of float
        Privacy cost of each question, in rho (zero-concentrated differential privacy).
    honest_ : int
        Number of sites whose noise the guarantee relies on.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(9000, 2)) + np.repeat([[-6, 0], [6, 0], [0, 9]], 3000, axis=0)
    >>> model = fc.PrivateKMeans(3, epsilon=1.0, bounds=(-15, 15)).fit(X)
    >>> sorted(model.cluster_centers_.round(0).astype(int).tolist())
    [[-6, 0], [0, 9], [6, 0]]
    """

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: Any = None,
        scale: str = "none",
        variant: str = "projected",
        rounds: int | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.scale = scale
        self.variant = variant
        self.rounds = rounds
        self.random_state = random_state


class PrivateFuzzyCMeans(FuzzyCentersModel, _PrivateEstimator):
    """Fuzzy c-means under differential privacy for single rows, from the same noisy sums as `PrivateKMeans`.

    The noisy sums describe round clusters of equal width. Fuzzy c-means on rows drawn from these clusters gives the
    centres, and the sites compute memberships from the centres.

    Parameters
    ----------
    n_clusters, epsilon, delta, bounds, scale, random_state
        As for `PrivateKMeans`.
    m : float, default=2.0
        Fuzziness.
    """

    def __init__(
        self,
        n_clusters: Any = 8,
        *,
        m: float = 2.0,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: Any = None,
        scale: str = "none",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.scale = scale
        self.random_state = random_state

    variant = "projected"
    rounds = None

    @property
    def fuzziness(self) -> float:
        require(
            is_real_number(self.m) and 1 < self.m <= MAX_FUZZINESS,
            f"m is {self.m!r}; it must be above 1 and at most {MAX_FUZZINESS}; for hard clusters use PrivateKMeans",
        )
        return float(self.m)


def draw_similar_rows(model: CentersModel, width: float, rows: int, rng: np.random.Generator) -> Floats:
    """Draw rows like those that a model describes: round clusters with its sizes and its width, at no further cost."""
    shares = np.maximum(np.asarray(model.cluster_sizes_), 1.0)
    at = np.asarray(model.scaled_centers_)[rng.choice(len(shares), rows, p=shares / shares.sum())]
    seen = at + width * draw_normals(rng, at.shape)
    view = View(np.zeros(at.shape[1], np.int32), model.origin_, model.spread_)
    return view.to_original_units(seen)
