"""The lossless estimators: c-means and fuzzy c-means, over rows and over columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from fedclust.algorithms import horizontal, start, vertical
from fedclust.algorithms.model import Fitted
from fedclust.core.errors import DataError
from fedclust.core.protocol import ALL, Protocol, Quorum
from fedclust.core.site import View
from fedclust.core.types import Array, Floats
from fedclust.estimators.base import FederatedEstimator, columns_of, require
from fedclust.federation import Federation, box_of
from fedclust.kernels import cmeans, distances, fcm
from fedclust.preprocessing import bounds as limits
from fedclust.preprocessing import standardise

STARTS = ("box", "party", "careful")
SCALES = ("none", "minmax", "standardise")


class _Lossless(FederatedEstimator):
    """What both share; `_m` is the fuzziness, 1 for hard c-means."""

    kept: ClassVar[tuple[str, ...]] = (
        "cluster_centers_",
        "scaled_centers_",
        "start_centers_",
        "objective_",
        "n_rounds_",
        "history_",
        "cluster_sizes_",
        "origin_",
        "spread_",
    )

    n_clusters: int
    start: Any
    tol: float | None
    max_rounds: int
    scale: str
    bounds: Any
    participation: float
    quorum: Quorum
    small_sites: str | None
    _m: float
    _hide_singletons: bool = False

    def protocol(self, fed: Federation) -> Protocol[tuple[Fitted, View | None, Floats | None]]:
        self._check(fed)
        return self._over_rows(fed) if fed.split == "rows" else self._over_columns(fed)

    def _over_rows(self, fed: Federation) -> Protocol[tuple[Fitted, View | None, Floats | None]]:
        box = box_of(self.bounds, len(fed.columns))
        self._enough((yield from limits.count(len(fed.columns))))
        view = (yield from limits.agree(len(fed.columns))) if box is None else limits.declared(*box)
        if self.scale == "standardise":
            view = yield from standardise.standardise(view)
        elif self.scale == "minmax" and box is not None:
            view = standardise.scaled(view, box[0], _positive(box[1] - box[0]))
        begin, notes = yield from self._begin(fed, view, box)
        fitted = yield from self._iterate(fed, view, view.points(begin))
        return replace(fitted, start=begin, notes=(*notes, *fitted.notes)), view, None

    def _iterate(self, fed: Federation, view: View, centers: Floats) -> Protocol[Fitted]:
        """Move the centres over a row split."""
        return horizontal.fit(
            view,
            centers,
            m=self._m,
            tol=self.tol,
            max_rounds=self.max_rounds,
            parties=fed.parties,
            rng=np.random.default_rng((self.seed_, 2)),  # the same whatever the start drew
            participation=self.participation,
            singletons=self._hide_singletons,
            small_sites=self.small_sites == "paper",
        )

    def _begin(
        self, fed: Federation, view: View, box: tuple[Floats, Floats] | None
    ) -> Protocol[tuple[Floats, list[str]]]:
        """The first centres in original units, as they are recorded, and what to say of them."""
        if not isinstance(self.start, str):
            return self._given(fed), []
        rng = np.random.default_rng((self.seed_, 1))
        if self.start == "party":
            return view.back((yield from start.party(view, self.n_clusters, fed.parties, rng))), []
        if self.start == "careful":
            centers, drawn = yield from start.careful(view, self.n_clusters, self.seed_, rng)
            told = (
                f"Careful seeding found {self.n_clusters - drawn} candidates of five rows; {drawn} centres were drawn."
            )
            return view.back(centers), [told] if drawn else []
        seen = None if box is None else (view.points(box[0]), view.points(box[1]))
        return view.back((yield from start.box(view, self.n_clusters, self.seed_, seen))), []

    def _over_columns(self, fed: Federation) -> Protocol[tuple[Fitted, View | None, Floats | None]]:
        given = None if isinstance(self.start, str) else self._given(fed)
        how, box = self._views(fed, given)
        table = yield from vertical.agree(fed.places, how)
        self._enough(table.rows)
        fitted, d2 = yield from vertical.fit(
            table,
            "given" if given is not None else "careful" if self.start == "careful" else "box",
            n_clusters=self.n_clusters,
            m=self._m,
            tol=self.tol,
            max_rounds=self.max_rounds,
            seed=self.seed_,
            box=box,
        )
        return fitted, None, d2

    def _views(
        self, fed: Federation, centers: Floats | None
    ) -> tuple[dict[str, vertical.Prepare], tuple[Floats, Floats] | None]:
        """How each party of a column split looks at its columns, and the box in that view."""
        box = box_of(self.bounds, len(fed.columns))
        own = {} if centers is None else vertical.slices(fed.places, centers)
        if self.scale == "minmax" and box is not None:
            low, wide = (vertical.slices(fed.places, b[None, :]) for b in (box[0], _positive(box[1] - box[0])))
            how = {p: vertical.Prepare(origin=low[p][0], spread=wide[p][0], centers=own.get(p)) for p in fed.parties}
            view = View(np.zeros(len(fed.columns), np.int32), box[0], _positive(box[1] - box[0]))
            return how, (view.points(box[0]), view.points(box[1]))
        standard = self.scale == "standardise"
        how = {p: vertical.Prepare(standardise=standard, centers=own.get(p)) for p in fed.parties}
        return how, None if standard else box

    def _keep(self, fed: Federation, result: tuple[Fitted, View | None, Floats | None]) -> None:
        fitted, view, d2 = result
        self.objective_ = fitted.objective
        self.n_rounds_ = len(fitted.history)
        self.history_ = [{"round": r.number, "shift": r.shift, "objective": r.objective} for r in fitted.history]
        self.cluster_sizes_ = fitted.mass
        self.notes_ = [*fitted.notes, *_constant(fed)]
        if self.tol is not None and fitted.history and not fitted.history[-1].shift < self.tol:
            self.notes_.append(
                f"Stopped after {self.max_rounds} rounds, before the centres moved by less than {self.tol:g}."
            )
        if view is not None:
            self.origin_, self.spread_ = view.origin, view.spread
            self.cluster_centers_ = view.back(fitted.centers)
            self.start_centers_ = fitted.start
            self.scaled_centers_ = fitted.centers
            if all(holding.source.resident for holding in fed.holdings.values()) and fed.holdings:
                blocks = [block for holding in fed.holdings.values() for block in holding.blocks(view)]
                self.labels_ = np.concatenate([self._labels(block) for block in blocks])
        elif d2 is not None:
            self.labels_ = cmeans.labels_from(d2).astype(np.int32)
            self._assemble(fed)

    def _assemble(self, fed: Federation) -> None:
        """Put the slices of a column split together, which only one process can."""
        kept = fed.memory()
        if not kept:
            return
        width = len(fed.columns)
        seen, origin, spread = np.empty((self.n_clusters, width)), np.zeros(width), np.ones(width)
        for party, places in fed.places.items():
            seen[:, places] = kept[party]["centers"]
            origin[places] = kept[party].get("origin", 0.0)
            spread[places] = kept[party].get("spread", 1.0)
        plain = not any("origin" in own for own in kept.values())
        self.origin_, self.spread_ = (None, None) if plain else (origin, spread)
        self.scaled_centers_ = seen
        self.cluster_centers_ = self._view().back(seen)

    def predict(self, X: Any) -> NDArray[np.int32]:
        """The nearest centre of each row; for a federation, of its rows in the order of its parties."""
        if isinstance(X, Federation):
            return self._predict_federation(X)
        return self._labels(columns_of(self._rows(X)))

    def _predict_federation(self, fed: Federation) -> NDArray[np.int32]:
        if fed.split == "columns":
            return cmeans.labels_from(self._squared(fed)).astype(np.int32)
        return np.concatenate([self._labels(block) for block in self._blocks(fed)])

    def _squared(self, fed: Federation) -> Floats:
        """Squared distances over a column split, asked for as totals."""
        check_is_fitted(self)
        centers = vertical.slices(fed.places, self.cluster_centers_)
        origin = None if self.origin_ is None else vertical.slices(fed.places, self.origin_[None, :])
        spread = None if self.spread_ is None else vertical.slices(fed.places, self.spread_[None, :])
        how = {
            p: vertical.Prepare(
                origin=origin[p][0] if origin else None, spread=spread[p][0] if spread else None, centers=centers[p]
            )
            for p in fed.parties
        }

        def script() -> Protocol[Floats]:
            table = yield from vertical.agree(fed.places, how)
            return (yield from vertical.squared(table, self.n_clusters))

        return fed.run(script())[0]

    def _blocks(self, fed: Federation) -> list[Array]:
        if not fed.holdings:
            raise DataError("labels stay at the sites; run 'fedclust site assign' there")
        view = self._view()
        return [view.of(block) for holding in fed.holdings.values() for block in holding.source.blocks()]

    def _labels(self, block: Array) -> NDArray[np.int32]:
        return distances.labels(block, self.scaled_centers_)[0]

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self)
        if hasattr(X, "columns") and not hasattr(self, "feature_names_in_"):
            X = self._named(X)  # fitted on a federation, so its columns go by name
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._view().points(rows)

    def _named(self, frame: Any) -> Array:
        absent = [name for name in self.columns_ if name not in frame.columns]
        if absent:
            raise DataError(f"the rows have no column '{absent[0]}', which the model was fitted with")
        return np.column_stack([np.asarray(frame[name], np.float64) for name in self.columns_])

    def _view(self) -> View:
        return View(np.zeros(self.n_features_in_, np.int32), self.origin_, self.spread_)

    def _given(self, fed: Federation) -> Floats:
        centers = np.asarray(self.start, np.float64)
        shape = (self.n_clusters, len(fed.columns))
        require(
            centers.shape == shape and bool(np.isfinite(centers).all()),
            f"start must be finite centres of shape {shape}",
        )
        return centers

    def _enough(self, rows: int) -> None:
        if rows < self.n_clusters:
            raise DataError(f"n_samples={rows} is fewer than n_clusters={self.n_clusters}; ask for fewer clusters")

    def _check(self, fed: Federation) -> None:
        require(
            _whole(self.n_clusters) and self.n_clusters >= 1,
            f"n_clusters is {self.n_clusters}; it must be a whole number of at least 1",
        )
        require(
            _whole(self.max_rounds) and self.max_rounds >= 1, f"max_rounds is {self.max_rounds}; it must be at least 1"
        )
        require(
            self.tol is None or self.tol >= 0, f"tol is {self.tol}; it must be at least 0, or None to never stop early"
        )
        require(
            not isinstance(self.start, str) or self.start in STARTS,
            f"start is '{self.start}'; choose one of {', '.join(STARTS)}, or give centres",
        )
        require(0 < self.participation <= 1, f"participation is {self.participation}; it must be above 0 and at most 1")
        require(
            _is_quorum(self.quorum), f"quorum is {self.quorum!r}; choose 'all', a number of parties, or a share above 0"
        )
        require(self.scale in SCALES, f"scale is '{self.scale}'; choose one of {', '.join(SCALES)}")
        require(self.scale != "minmax" or self.bounds is not None, "scale 'minmax' needs public bounds; set bounds")
        require(self.small_sites in (None, "paper"), f"small_sites is {self.small_sites!r}; choose None or 'paper'")
        if fed.split == "columns":
            drawn = isinstance(self.start, str) and self.start == "party"
            require(not drawn, "start 'party' needs whole rows; use 'box' or 'careful' for a column split")
            require(self.quorum == ALL, "a column split needs every party in every step; set quorum to 'all'")
            require(self.participation == 1, "a column split needs every party in every round; set participation to 1")


class CMeans(_Lossless):
    """Hard c-means (k-means), the same as on pooled rows, bit for bit.

    Parameters
    ----------
    n_clusters : number of clusters.
    start : "box", "party", "careful", or centres.
    tol, max_rounds : stop when the centres move by less than tol (None: never), or after max_rounds.
    scale : "none", "standardise", or "minmax" with public `bounds` (a pair, or a pair per column).
    participation : share of the parties asked in each round.
    quorum : "all", or the number or share of parties that must answer.
    singletons : "paper" hides a site's cluster of one row, which costs exactness and leaks; see the threat model.
    small_sites : "paper" lets sites with few rows abstain.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> a, b = np.array([[0.0], [1.0], [10.0]]), np.array([[11.0], [12.0]])
    >>> model = fc.CMeans(2, start=[[0.0], [10.0]]).fit(fc.Federation.local({"a": a, "b": b}))
    >>> model.cluster_centers_.ravel().tolist()
    [0.5, 11.0]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        start: Any = "careful",
        tol: float | None = 1e-6,
        max_rounds: int = 100,
        scale: str = "none",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        singletons: str | None = None,
        small_sites: str | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.start = start
        self.tol = tol
        self.max_rounds = max_rounds
        self.scale = scale
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.singletons = singletons
        self.small_sites = small_sites
        self.random_state = random_state

    _m = 1.0

    @property
    def _hide_singletons(self) -> bool:  # type: ignore[override]
        require(self.singletons in (None, "paper"), f"singletons is {self.singletons!r}; choose None or 'paper'")
        return self.singletons == "paper"


class FuzzyCMeans(_Lossless):
    """Fuzzy c-means at fuzziness m > 1, the same as on pooled rows, bit for bit.

    Parameters are those of `CMeans`, and m.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 9]], 30, axis=0)
    >>> pooled = fc.FuzzyCMeans(2, start="box").fit(X)
    >>> parts = fc.FuzzyCMeans(2, start="box").fit(fc.Federation.local({"a": X[:7], "b": X[7:40], "c": X[40:]}))
    >>> bool((parts.cluster_centers_ == pooled.cluster_centers_).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        start: Any = "careful",
        tol: float | None = 1e-6,
        max_rounds: int = 100,
        scale: str = "none",
        bounds: Any = None,
        participation: float = 1.0,
        quorum: Quorum = "all",
        small_sites: str | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.start = start
        self.tol = tol
        self.max_rounds = max_rounds
        self.scale = scale
        self.bounds = bounds
        self.participation = participation
        self.quorum = quorum
        self.small_sites = small_sites
        self.random_state = random_state

    @property
    def _m(self) -> float:  # type: ignore[override]
        require(
            np.isfinite(self.m) and self.m > 1,
            f"m is {self.m}; fuzziness must be above 1 (use CMeans for hard clusters)",
        )
        return float(self.m)

    def memberships(self, X: Any) -> Floats:
        """The degree to which each row belongs to each cluster, rows by clusters."""
        if isinstance(X, Federation):
            if X.split == "columns":
                return fcm.memberships_from(self._squared(X), self._m).T
            return np.concatenate(
                [fcm.memberships(block, self.scaled_centers_, self._m).T for block in self._blocks(X)]
            )
        return fcm.memberships(columns_of(self._rows(X)), self.scaled_centers_, self._m).T


def _positive(width: Floats) -> Floats:
    return np.where(width > 0, width, 1.0)


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_quorum(value: Any) -> bool:
    return value == ALL if isinstance(value, str) else (_whole(value) and value >= 1) or 0 < value <= 1


def _constant(fed: Federation) -> list[str]:
    """Columns that hold one value everywhere, as far as this process can see."""
    surveys = [(h.source.columns, h.survey) for h in fed.holdings.values()]
    names = {name for own, _ in surveys for name in own}
    for own, found in surveys:
        names -= {name for name in own if name not in found.constant}
    same = [
        name
        for name in fed.columns
        if name in names and len({float(s.lo[o.index(name)]) for o, s in surveys if name in o}) == 1
    ]
    return [f"Constant, so without influence: {', '.join(same)}."] if same else []
