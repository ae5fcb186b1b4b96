"""The estimators that move centres until they settle: views, initial centres, the loop and what a model keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.cmeans import column_split, row_split, rows_with_gaps
from fedclust.algorithms.cmeans.fit_result import Fitted
from fedclust.algorithms.shared import initial_centers
from fedclust.core.effects import ALL, Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, PartyId
from fedclust.federation.federation import LARGEST, Federation, box_of
from fedclust.models import fit_notes
from fedclust.models.assignment import CentersModel
from fedclust.models.input_checks import is_quorum, number, require, some, whole
from fedclust.questions import bounds as limits
from fedclust.questions import schema, standardisation
from fedclust.questions.missing_values import told

STARTS = ("box", "party", "careful")
SCALES = ("none", "minmax", "standardise")


class CentersEstimator(CentersModel):
    """What methods share that end in centres; those that are not lossless say so in `lossless`."""

    takes_initial_centers: ClassVar[bool] = True

    kept: ClassVar[tuple[str, ...]] = (
        "cluster_centers_",
        "scaled_centers_",
        "initial_centers_",
        "objective_",
        "n_iter_",
        "history_",
        "cluster_sizes_",
        "origin_",
        "spread_",
    )

    n_clusters: int
    init: Any
    tol: float | None
    max_iter: int
    scale: str
    missing: str
    bounds: Any
    participation: float
    quorum: Quorum
    small_sites: str | None
    objective_: float
    _hide_singletons: bool = False

    def protocol(self, fed: Federation) -> Protocol[tuple[Fitted, View] | column_split.Settled]:
        self._check(fed)
        return self._over_rows(fed) if fed.split == "rows" else self._over_columns(fed)

    def _over_rows(self, fed: Federation) -> Protocol[tuple[Fitted, View]]:
        view, box, gaps = yield from self._looked(fed)
        begin, notes = yield from self._begin(fed, view, box)
        fitted = yield from self._iterate(fed, view, view.points(begin))
        return replace(fitted, start=begin, notes=(*gaps, *notes, *fitted.notes)), view

    def _looked(self, fed: Federation) -> Protocol[tuple[View, tuple[Floats, Floats] | None, list[str]]]:
        """How a row split is looked at, the public box if there is one, and what to say of gaps."""
        width, missing, box = len(fed.columns), self._missing, box_of(self.bounds, len(fed.columns))
        if fed.declared:
            yield from schema.agree(fed.declared, missing)
        self._enough(some((yield from limits.count(width, missing)), missing))
        gaps = yield from told(fed.columns, missing)
        view = (yield from limits.agree(width, missing)) if box is None else limits.declared(*box, missing)
        if self.scale == "standardise":
            view = yield from standardisation.standardise(view)
        elif self.scale == "minmax" and box is not None:
            view = standardisation.scaled(view, box[0], _positive(box[1] - box[0]))
        return view, box, gaps

    def _iterate(self, fed: Federation, view: View, centers: Floats) -> Protocol[Fitted]:
        """Move the centres over a row split."""
        return row_split.fit(
            view,
            centers,
            m=self.fuzziness,
            tol=self._stop(fed),
            max_iter=self.max_iter,
            parties=fed.parties,
            rng=np.random.default_rng((self.seed_, 2)),  # the same whatever the start drew
            participation=self.participation,
            singletons=self._hide_singletons,
            small_sites=self.small_sites == "paper",
            moved_by=rows_with_gaps.one_round if view.missing == "partial" else row_split.one_round,
        )

    def _begin(
        self, fed: Federation, view: View, box: tuple[Floats, Floats] | None
    ) -> Protocol[tuple[Floats, list[str]]]:
        """The first centres in original units, as they are recorded, and what to say of them."""
        if not isinstance(self.init, str):
            return self._given(fed), []
        rng = np.random.default_rng((self.seed_, 1))
        if self.init == "party":
            return view.back(
                (yield from initial_centers.party(view, self.n_clusters, fed.parties, self.seed_, rng))
            ), []
        if self.init == "careful":
            seeding = rows_with_gaps.careful if view.missing == "partial" else initial_centers.careful
            centers, drawn = yield from seeding(view, self.n_clusters, self.seed_, rng)
            told = (
                f"Careful seeding found {self.n_clusters - drawn} candidates of five rows; {drawn} centres were drawn."
            )
            return view.back(centers), [told] if drawn else []
        seen = None if box is None else (view.points(box[0]), view.points(box[1]))
        return view.back((yield from initial_centers.box(view, self.n_clusters, self.seed_, seen))), []

    def _over_columns(self, fed: Federation) -> Protocol[column_split.Settled]:
        given = None if isinstance(self.init, str) else self._given(fed)
        if fed.declared:
            yield from schema.agree(fed.declared)
        how, box = self._views(fed, given)
        drawn = given is None and self.init == "box"
        places = column_split.box_places(fed.places, self.n_clusters, box, self.seed_) if drawn else None
        table = yield from column_split.agree(fed.places, how, places)
        self._enough(some(table.rows, self._missing))
        return (yield from self._iterate_columns(fed, table, careful=given is None and not drawn))

    def _iterate_columns(
        self, fed: Federation, table: column_split.Table, *, careful: bool
    ) -> Protocol[column_split.Settled]:
        """Move the centres over a column split."""
        return column_split.fit(
            table,
            n_clusters=self.n_clusters,
            m=self.fuzziness,
            tol=self._stop(fed),
            max_iter=self.max_iter,
            seed=self.seed_,
            careful=careful,
            show=fed.local_sites.allow(column_split.reveal),
        )

    def _views(
        self, fed: Federation, centers: Floats | None
    ) -> tuple[dict[str, column_split.Prepare], tuple[Floats, Floats] | None]:
        """How each party of a column split looks at its columns, and the box in that view."""
        box = box_of(self.bounds, len(fed.columns))
        own = {} if centers is None else column_split.slices(fed.places, centers)
        if self.scale == "minmax" and box is not None:
            low, wide = (column_split.slices(fed.places, b[None, :]) for b in (box[0], _positive(box[1] - box[0])))
            how = {
                p: column_split.Prepare(origin=low[p][0], spread=wide[p][0], centers=own.get(p)) for p in fed.parties
            }
            view = View(np.zeros(len(fed.columns), np.int32), box[0], _positive(box[1] - box[0]))
            return how, (view.points(box[0]), view.points(box[1]))
        standard = self.scale == "standardise"
        how = {p: column_split.Prepare(standardise=standard, centers=own.get(p)) for p in fed.parties}
        return how, None if standard else box

    def _keep(self, fed: Federation, result: tuple[Fitted, View] | column_split.Settled) -> None:
        fitted = result.fitted if isinstance(result, column_split.Settled) else result[0]
        self._keep_objective(fitted.objective)
        self.n_iter_ = len(fitted.history)
        self.history_ = [{"round": r.number, "shift": r.shift, "objective": r.objective} for r in fitted.history]
        self.cluster_sizes_ = fitted.mass
        self.ids_ = fed.ids
        self.notes_ = [*fitted.notes, *fit_notes.constant(fed, self._missing), *self._ending(fed, result)]
        if isinstance(result, column_split.Settled):
            self.labels_ = result.labels
            self._assemble(fed, result)
        else:
            view = result[1]
            self.origin_, self.spread_ = view.origin, view.spread
            self.cluster_centers_ = view.back(fitted.centers)
            self.initial_centers_ = fitted.start
            self.scaled_centers_ = fitted.centers
            if all(holding.source.resident for holding in fed.holdings.values()) and fed.holdings:
                whole = view.missing == "refuse"
                blocks = [held.blocks(view) if whole else self._looked_at(held) for held in fed.holdings.values()]
                self.labels_ = np.concatenate([self._labels(block) for own in blocks for block in own])

    def _keep_objective(self, objective: float) -> None:
        """Store the final objective under the name that the method has for it."""
        self.objective_ = objective

    @property
    def final_objective(self) -> float | None:
        return self.objective_

    def _ending(self, fed: Federation, result: tuple[Fitted, View] | column_split.Settled) -> list[str]:
        ended = fit_notes.ending(self.tol, self.max_iter, fed.columns, result)
        return [*ended, *fit_notes.coincident(self.fuzziness, result)]

    def _assemble(self, fed: Federation, settled: column_split.Settled) -> None:
        """Put the slices of a column split together, where the parties showed them."""
        if settled.start is None or settled.end is None:
            self.notes_.append("Each site keeps its slice of the centres; this model has none of its own.")
            return
        self.initial_centers_ = _joined(fed, {p: own.centers for p, own in settled.start.items()})
        self.cluster_centers_ = _joined(fed, {p: own.centers for p, own in settled.end.items()})
        origin = {p: own.origin[None, :] for p, own in settled.end.items() if own.origin is not None}
        spread = {p: own.spread[None, :] for p, own in settled.end.items() if own.spread is not None}
        self.origin_ = _joined(fed, origin)[0] if origin else None
        self.spread_ = _joined(fed, spread)[0] if spread else None
        self.scaled_centers_ = self._view().points(self.cluster_centers_)

    def _given(self, fed: Federation) -> Floats:
        shape = (self.n_clusters, len(fed.columns))
        try:
            centers = np.asarray(self.init, np.float64)
        except (TypeError, ValueError):
            centers = np.empty(0)
        sound = centers.shape == shape and bool((np.abs(centers) <= LARGEST).all())
        require(sound, f"init must be finite centres of shape {shape}")
        return centers

    def _enough(self, rows: int) -> None:
        if rows < self.n_clusters:
            raise DataError(f"n_samples={rows} is fewer than n_clusters={self.n_clusters}; ask for fewer clusters")

    def _check(self, fed: Federation) -> None:
        require(
            whole(self.n_clusters) and self.n_clusters >= 1,
            f"n_clusters is {self.n_clusters!r}; it must be a whole number of at least 1",
        )
        require(
            whole(self.max_iter) and self.max_iter >= 1,
            f"max_iter is {self.max_iter!r}; it must be a whole number of at least 1",
        )
        require(
            self.tol is None or (number(self.tol) and self.tol >= 0),
            f"tol is {self.tol!r}; it must be a number of at least 0, or None to never stop early",
        )
        require(
            not isinstance(self.init, str) or self.init in STARTS,
            f"init is '{self.init}'; choose one of {', '.join(STARTS)}, or give centres",
        )
        require(
            number(self.participation) and 0 < self.participation <= 1,
            f"participation is {self.participation!r}; it must be a number above 0 and at most 1",
        )
        require(
            is_quorum(self.quorum), f"quorum is {self.quorum!r}; choose 'all', a number of parties, or a share above 0"
        )
        self.fuzziness  # noqa: B018 says what is wrong with a fuzziness before anything is asked
        require(self.scale in SCALES, f"scale is '{self.scale}'; choose one of {', '.join(SCALES)}")
        require(self.scale != "minmax" or self.bounds is not None, "scale 'minmax' needs public bounds; set bounds")
        require(self.small_sites in (None, "paper"), f"small_sites is {self.small_sites!r}; choose None or 'paper'")
        if self._missing == "partial":
            drawn = isinstance(self.init, str) and self.init == "party"
            require(not drawn, "init 'party' needs whole rows; use 'box' or 'careful' with missing 'partial'")
            paper = self.small_sites == "paper" or self._hide_singletons
            require(not paper, "the papers' rules are for whole rows; leave them out with missing 'partial'")
        if fed.split == "columns":
            paper = self.small_sites == "paper" or self._hide_singletons
            require(not paper, "the papers' rules are for row splits; leave singletons and small_sites out")
            require(self._missing == "refuse", "a column split needs every value; set missing to 'refuse'")
            drawn = isinstance(self.init, str) and self.init == "party"
            require(not drawn, "init 'party' needs whole rows; use 'box' or 'careful' for a column split")
            require(self.quorum == ALL, "a column split needs every party in every step; set quorum to 'all'")
            require(self.participation == 1, "a column split needs every party in every round; set participation to 1")


def _joined(fed: Federation, parts: Mapping[PartyId, Floats]) -> Floats:
    """Slices of points side by side, in the order of the study's columns."""
    whole = np.empty((len(next(iter(parts.values()))), len(fed.columns)))
    for party, places in fed.places.items():
        whole[:, places] = parts[party]
    return whole


def _positive(width: Floats) -> Floats:
    return np.where(width > 0, width, 1.0)
