"""Base of the estimators that move centres until they converge: view, initial centres, iterations and stored result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedclust.algorithms.cmeans import column_split, column_start, row_split, rows_with_gaps
from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.algorithms.shared import initial_centers
from fedclust.algorithms.shared.spread_free_centers import (
    AUTO_CANDIDATES,
    CROSSING_ROUNDS,
    CROSSINGS,
    MAX_START_ASKS,
    MIN_CROSSED_CLUSTERS,
    StartRequest,
    best_of_draws,
    plus_plus_centers,
    random_centers,
    start_padding,
)
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import ALL_PARTIES, Protocol, Quorum
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, PartyId
from fedclust.federation.federation import MAX_MAGNITUDE, Federation, parse_bounds
from fedclust.models import centers_checks, fit_notes
from fedclust.models.assignment import CentersModel
from fedclust.models.centers_checks import TREE_INITS
from fedclust.models.input_checks import (
    SEED_LIMIT,
    is_quorum,
    is_real_number,
    is_whole_number,
    require,
    require_rows,
)
from fedclust.privacy.padding import Padding
from fedclust.questions import bounds as limits
from fedclust.questions import schema, standardisation
from fedclust.questions.missing_values import missing_value_notes

CENTER_SCALES = ("none", "minmax", "standardise")


class CentersEstimator(CentersModel):
    """Base of the methods whose result is centres; methods that are lossless set `lossless` to True."""

    takes_initial_centers: ClassVar[bool] = True

    saved_attributes: ClassVar[tuple[str, ...]] = (
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
    n_init: int | str = "auto"
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

    def protocol(self, fed: Federation) -> Protocol[tuple[FitResult, View] | column_split.ColumnFit]:
        self._check_parameters(fed)
        return self._fit_rows(fed) if fed.split == "rows" else self._fit_columns(fed)

    def _fit_rows(self, fed: Federation) -> Protocol[tuple[FitResult, View]]:
        view, box, gaps = yield from self._agree_on_view(fed)
        begin, notes = yield from self._initial_centers(fed, view, box)
        fitted = yield from self._iterate_rows(fed, view, view.transform_points(begin))
        return replace(fitted, start=begin, notes=(*gaps, *notes, *fitted.notes)), view

    def _agree_on_view(self, fed: Federation) -> Protocol[tuple[View, tuple[Floats, Floats] | None, list[str]]]:
        """Return the view of a row split, the public box if there is one, and notes on missing values."""
        width, missing, box = len(fed.columns), self._missing_rule, parse_bounds(self.bounds, len(fed.columns))
        if fed.declared_schemas:
            yield from schema.check_declarations(fed.declared_schemas, missing)
        self._check_row_count(require_rows((yield from limits.total_rows(width, missing)), missing))
        gaps = yield from missing_value_notes(fed.columns, missing)
        view = (
            (yield from limits.agree_on_bounds(width, missing))
            if box is None
            else limits.view_from_bounds(*box, missing)
        )
        if self.scale == "standardise":
            view = yield from standardisation.standardise(view)
        elif self.scale == "minmax" and box is not None:
            view = standardisation.scale_view(view, box[0], _replace_zeros(box[1] - box[0]))
        return view, box, gaps

    def _iterate_rows(self, fed: Federation, view: View, centers: Floats) -> Protocol[FitResult]:
        """Move the centres over a row split."""
        return row_split.fit(
            view,
            centers,
            m=self.fuzziness,
            tol=self._stopping_tol(fed),
            max_iter=self.max_iter,
            parties=fed.parties,
            rng=np.random.default_rng((self.seed_, 2)),  # does not depend on what the initial centres drew
            participation=self.participation,
            singletons=self._hide_singletons,
            small_sites=self.small_sites == "paper",
            ask_round=rows_with_gaps.one_round if view.missing == "partial" else row_split.one_round,
        )

    def _initial_centers(
        self, fed: Federation, view: View, box: tuple[Floats, Floats] | None
    ) -> Protocol[tuple[Floats, list[str]]]:
        """Return the initial centres in original units, as they are recorded, and notes on them."""
        if not isinstance(self.init, str):
            return self._given_centers(fed), []
        rng = np.random.default_rng((self.seed_, 1))
        if self.init in TREE_INITS:
            return (yield from self._centers_from_totals(fed, view, rng))
        notes = self._spread_notes(fed)
        if self.init == "party":
            return view.to_original_units(
                (yield from initial_centers.party_centers(view, self.n_clusters, fed.parties, self.seed_, rng))
            ), notes
        if self.init == "careful":
            seeding = rows_with_gaps.careful_centers if view.missing == "partial" else initial_centers.careful_centers
            centers, drawn = yield from seeding(view, self.n_clusters, self.seed_, rng)
            means = self.n_clusters - drawn
            note = (
                f"init='careful' found only {count_noun(means, 'mean')} of five rows to start from; "
                f"{count_noun(drawn, 'centre was', 'centres were')} drawn at random."
            )
            return view.to_original_units(centers), [note, *notes] if drawn else notes
        return view.to_original_units((yield from self._box_centers(view, box))), []

    def _centers_from_totals(
        self, fed: Federation, view: View, rng: np.random.Generator
    ) -> Protocol[tuple[Floats, list[str]]]:
        """Return centres that are the same for every spread of the rows, in original units, and notes on them."""
        ask = self._start_request(fed, view)
        find = plus_plus_centers if self.init == "k-means++" else random_centers
        found = yield from find(view, ask, rng)
        note = (
            f"init='{self.init}' found only {count_noun(self.n_clusters - found.drawn, 'group')} of rows to start "
            f"from; {count_noun(found.drawn, 'centre was', 'centres were')} drawn at random."
        )
        return view.to_original_units(found.centers), [note] if found.drawn else []

    def _start_request(self, fed: Federation, view: View) -> StartRequest:  # noqa: ARG002 a subclass decides by the view
        """Return what is asked of the cells that initial centres come from."""
        everyone = self.quorum == ALL_PARTIES
        return StartRequest(
            self.n_clusters,
            self._candidate_count,
            self.seed_,
            floor=fed.cell_floor,
            everyone=everyone,
            crossing_rounds=CROSSING_ROUNDS if self._crosses_candidates else 0,
        )

    def _box_centers(self, view: View, box: tuple[Floats, Floats] | None) -> Protocol[Floats]:
        """Return the best of some draws within the bounds, in the view."""
        seen = None if box is None else (view.transform_points(box[0]), view.transform_points(box[1]))
        draws = []
        for number in range(self._candidate_count):
            seed = (self.seed_ + number) % SEED_LIMIT
            draws.append((yield from initial_centers.box_centers(view, self.n_clusters, seed, seen)))
        return draws[0] if len(draws) == 1 else (yield from best_of_draws(view, draws, self.seed_))

    @property
    def hides_small_counts(self) -> bool:
        return self.small_sites == "paper" or self._hide_singletons

    @property
    def _candidate_count(self) -> int:
        """How many sets of initial centres are compared over all rows."""
        if self.n_init == "auto":
            return AUTO_CANDIDATES if isinstance(self.init, str) and self.init == "k-means++" else 1
        return int(self.n_init)

    @property
    def _crosses_candidates(self) -> bool:
        """Whether the candidates that are best over all rows are crossed and compared again."""
        best_of_many = isinstance(self.init, str) and self.init == "k-means++" and self.n_init == "auto"
        return best_of_many and self.n_clusters >= MIN_CROSSED_CLUSTERS

    @property
    def _max_asks(self) -> int:
        from_totals = isinstance(self.init, str) and self.init in TREE_INITS
        return super()._max_asks + (MAX_START_ASKS if from_totals else 0)

    def _message_padding(self, columns: int) -> Padding:
        usual = super()._message_padding(columns)
        if not isinstance(self.init, str) or (self.init not in TREE_INITS and self._candidate_count == 1):
            return usual
        together = max(self._candidate_count, CROSSINGS if self._crosses_candidates else 0)
        return usual.cover_both(start_padding(columns, self.n_clusters, together))

    def _spread_notes(self, fed: Federation) -> list[str]:
        """Return the note on a start that depends on who holds which row."""
        if not self.lossless or len(fed.parties) == 1:
            return []
        note = (
            f"With init='{self.init}' the initial centres, and so the result, depend on how the rows are spread over "
            "the sites. With init='k-means++' they do not."
        )
        return [note]

    def _fit_columns(self, fed: Federation) -> Protocol[column_split.ColumnFit]:
        given = None if isinstance(self.init, str) else self._given_centers(fed)
        if fed.declared_schemas:
            yield from schema.check_declarations(fed.declared_schemas)
        how, box = self._views_by_site(fed, given)
        drawn = given is None and self.init == "box"
        places = column_split.draw_placements(fed.column_places, self.n_clusters, box, self.seed_) if drawn else None
        table = yield from column_split.agree_on_table(fed.column_places, how, places)
        self._check_row_count(require_rows(table.rows, self._missing_rule))
        if given is None and not drawn:
            rng = np.random.default_rng((self.seed_, 1))
            yield from column_start.place_plus_plus(table, self.n_clusters, self._candidate_count, rng)
        return (yield from self._iterate_columns(fed, table))

    def _iterate_columns(self, fed: Federation, table: column_split.JointTable) -> Protocol[column_split.ColumnFit]:
        """Move the centres over a column split."""
        return column_split.fit(
            table,
            n_clusters=self.n_clusters,
            m=self.fuzziness,
            tol=self._stopping_tol(fed),
            max_iter=self.max_iter,
            seed=self.seed_,
            reveal_slices=fed.local_sites.all_allow(column_split.reveal),
        )

    def _views_by_site(
        self, fed: Federation, centers: Floats | None
    ) -> tuple[dict[str, column_split.Preparation], tuple[Floats, Floats] | None]:
        """Return the view of each site of a column split, and the box in that view."""
        box = parse_bounds(self.bounds, len(fed.columns))
        own = {} if centers is None else column_split.slices(fed.column_places, centers)
        if self.scale == "minmax" and box is not None:
            low, wide = (
                column_split.slices(fed.column_places, b[None, :]) for b in (box[0], _replace_zeros(box[1] - box[0]))
            )
            how = {
                p: column_split.Preparation(origin=low[p][0], spread=wide[p][0], centers=own.get(p))
                for p in fed.parties
            }
            view = View(np.zeros(len(fed.columns), np.int32), box[0], _replace_zeros(box[1] - box[0]))
            return how, (view.transform_points(box[0]), view.transform_points(box[1]))
        standard = self.scale == "standardise"
        how = {p: column_split.Preparation(standardise=standard, centers=own.get(p)) for p in fed.parties}
        return how, None if standard else box

    def store_result(self, fed: Federation, result: tuple[FitResult, View] | column_split.ColumnFit) -> None:
        fitted = result.fitted if isinstance(result, column_split.ColumnFit) else result[0]
        self._keep_objective(fitted.objective)
        self.n_iter_ = len(fitted.history)
        self.history_ = [{"round": r.number, "shift": r.shift, "objective": r.objective} for r in fitted.history]
        self.cluster_sizes_ = fitted.mass
        self.ids_ = fed.ids
        self.notes_ = [
            *fitted.notes,
            *fit_notes.constant_column_notes(fed, self._missing_rule),
            *self._ending_notes(fed, result),
        ]
        if isinstance(result, column_split.ColumnFit):
            self.labels_ = result.labels
            self._assemble_slices(fed, result)
        else:
            view = result[1]
            self.origin_, self.spread_ = view.origin, view.spread
            self.cluster_centers_ = view.to_original_units(fitted.centers)
            self.initial_centers_ = fitted.start
            self.scaled_centers_ = fitted.centers
            if all(own_data.source.resident for own_data in fed.site_data.values()) and fed.site_data:
                whole = view.missing == "refuse"
                blocks = [held.blocks(view) if whole else self._view_blocks(held) for held in fed.site_data.values()]
                self.labels_ = np.concatenate([self.labels_in_view(block) for own in blocks for block in own])

    def _keep_objective(self, objective: float) -> None:
        """Store the final objective under the name that the method has for it."""
        self.objective_ = objective

    @property
    def final_objective(self) -> float | None:
        return self.objective_

    def _ending_notes(self, fed: Federation, result: tuple[FitResult, View] | column_split.ColumnFit) -> list[str]:
        ended = fit_notes.ending_notes(self.tol, self.max_iter, fed.columns, result)
        return [*ended, *fit_notes.coincidence_notes(self.fuzziness, result)]

    def _assemble_slices(self, fed: Federation, settled: column_split.ColumnFit) -> None:
        """Join the slices of a column split, if the sites revealed them."""
        if settled.start_slices is None or settled.end_slices is None:
            self.notes_.append("Each site keeps its columns of the centres; this model holds no centres.")
            return
        self.initial_centers_ = _join_slices(fed, {p: own.centers for p, own in settled.start_slices.items()})
        self.cluster_centers_ = _join_slices(fed, {p: own.centers for p, own in settled.end_slices.items()})
        origin = {p: own.origin[None, :] for p, own in settled.end_slices.items() if own.origin is not None}
        spread = {p: own.spread[None, :] for p, own in settled.end_slices.items() if own.spread is not None}
        self.origin_ = _join_slices(fed, origin)[0] if origin else None
        self.spread_ = _join_slices(fed, spread)[0] if spread else None
        self.scaled_centers_ = self._own_view().transform_points(self.cluster_centers_)

    def _given_centers(self, fed: Federation) -> Floats:
        shape = (self.n_clusters, len(fed.columns))
        try:
            given = np.asarray(self.init)
            centers = np.empty(0) if np.iscomplexobj(given) else given.astype(np.float64)
        except (TypeError, ValueError):
            centers = np.empty(0)
        sound = centers.shape == shape and bool((np.abs(centers) <= MAX_MAGNITUDE).all())
        require(sound, f"init must be an array of finite centres with the shape {shape}")
        return centers

    def _check_row_count(self, rows: int) -> None:
        if rows < self.n_clusters:
            raise DataError(f"n_samples={rows} is fewer than n_clusters={self.n_clusters}; ask for fewer clusters")

    def _check_parameters(self, fed: Federation) -> None:
        require(
            is_whole_number(self.n_clusters) and self.n_clusters >= 1,
            f"n_clusters is {self.n_clusters!r}; it must be a whole number of at least 1",
        )
        require(
            is_whole_number(self.max_iter) and self.max_iter >= 1,
            f"max_iter is {self.max_iter!r}; it must be a whole number of at least 1",
        )
        require(
            self.tol is None or (is_real_number(self.tol) and self.tol >= 0),
            f"tol is {self.tol!r}; it must be a number of at least 0, or None to run all max_iter iterations",
        )
        centers_checks.check_candidates(self.init, self.n_init, fed.split)
        require(
            is_real_number(self.participation) and 0 < self.participation <= 1,
            f"the parameter 'participation' is {self.participation!r}; it must be a number above 0 and at most 1",
        )
        require(
            is_quorum(self.quorum), f"quorum is {self.quorum!r}; use 'all', a number of sites, or a share such as 0.8"
        )
        self.fuzziness  # noqa: B018 refuses a wrong fuzziness before any question is asked
        require(self.scale in CENTER_SCALES, f"scale is '{self.scale}'; choose one of {', '.join(CENTER_SCALES)}")
        require(
            self.scale != "minmax" or self.bounds is not None,
            "scale='minmax' needs public bounds of every column; set bounds",
        )
        require(self.small_sites in (None, "paper"), f"small_sites is {self.small_sites!r}; choose None or 'paper'")
        if self._missing_rule == "partial":
            centers_checks.check_gaps(self)
        if fed.split == "columns":
            centers_checks.check_column_split(self, self._missing_rule)


def _join_slices(fed: Federation, parts: Mapping[PartyId, Floats]) -> Floats:
    """Join slices of points, in the order of the study's columns."""
    whole = np.empty((len(next(iter(parts.values()))), len(fed.columns)))
    for party, places in fed.column_places.items():
        whole[:, places] = parts[party]
    return whole


def _replace_zeros(width: Floats) -> Floats:
    return np.where(width > 0, width, 1.0)
