"""The setting `opening` of `KMeans`: open every sum, or only sums that differ from earlier ones by a floor of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from fedclust.algorithms.cmeans import floored_fit
from fedclust.algorithms.cmeans.fit_result import FitResult
from fedclust.algorithms.cmeans.floored_opening import Roles
from fedclust.algorithms.cmeans.floored_start import FlooredCells
from fedclust.algorithms.shared.spread_free_centers import MAX_DECIDED_START_ASKS, StartRequest
from fedclust.core.effects import ALL_PARTIES, Protocol
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.federation.federation import Federation
from fedclust.models.base import EXTRA_ASKS
from fedclust.models.centers_checks import TREE_INITS
from fedclust.models.input_checks import is_whole_number, require
from fedclust.models.streamed_fit import StreamingEstimator

OPENING_CHOICES = ("exact", "floored")
MAX_FLOOR = 1000
FLOORED_ASKS = 4  # questions of one iteration


class FlooredEstimator(StreamingEstimator):
    """What `opening="floored"` changes."""

    opening: str
    floor: int
    _rows_of_all_sites: int

    @property
    def opens_floored(self) -> bool:
        """Whether a cluster's sum is opened only if at least `floor` rows have changed."""
        return self.opening == "floored"

    @property
    def opening_floor(self) -> int:
        return self.floor if self.opens_floored else 1

    @property
    def takes_batches(self) -> bool:
        return super().takes_batches and not self.opens_floored

    @property
    def _max_asks(self) -> int:
        if not self.opens_floored:
            return super()._max_asks
        start = MAX_DECIDED_START_ASKS if isinstance(self.init, str) and self.init in TREE_INITS else 0
        return FLOORED_ASKS * (self.max_iter + 1) + EXTRA_ASKS + start

    def store_result(self, fed: Federation, result: Any) -> None:
        super().store_result(fed, result)
        self.opened_cells_ = result[0].cells if self.opens_floored and fed.split == "rows" else None

    def partial_fit(self, X: Any, y: Any = None, *, keep: float = 1.0) -> Self:
        require(
            not self.opens_floored or "scaled_centers_" not in vars(self),
            "an update opens the sums of every iteration; set opening to 'exact' to allow this, or fit all rows again",
        )
        updated: Self = super().partial_fit(X, y, keep=keep)
        return updated

    def _iterate_rows(self, fed: Federation, view: View, centers: Floats) -> Protocol[FitResult]:
        if not self.opens_floored:
            return super()._iterate_rows(fed, view, centers)
        return floored_fit.fit(
            view,
            centers,
            floor=self.floor,
            tol=self._stopping_tol(fed),
            max_iter=self.max_iter,
            rows=self._rows_of_all_sites,
            parties=fed.parties,
            rng=np.random.default_rng((self.seed_, 2)),
            record=fed.opening_record,
        )

    def _check_row_count(self, rows: int) -> None:
        super()._check_row_count(rows)
        self._rows_of_all_sites = rows

    def _start_request(self, fed: Federation, view: View) -> StartRequest:
        ask = super()._start_request(fed, view)
        if not self.opens_floored:
            return ask
        cells = FlooredCells(view, self.floor, Roles.assign(fed.parties), fed.opening_record)
        return replace(ask, floor=self.floor, opening=cells, crossing_rounds=0)

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        require(
            self.opening in OPENING_CHOICES,
            f"the parameter 'opening' is {self.opening!r}; choose one of {', '.join(OPENING_CHOICES)}",
        )
        require(
            is_whole_number(self.floor) and 1 <= self.floor <= MAX_FLOOR,
            f"floor is {self.floor!r}; it must be a whole number from 1 to {MAX_FLOOR}",
        )
        if not self.opens_floored:
            return
        rule = "opening='floored'"
        require(fed.split == "rows", f"{rule} works on row splits only; for a column split set opening to 'exact'")
        require(self._missing_rule != "partial", f"{rule} needs rows without missing values; set missing to 'drop'")
        require(
            self.quorum == ALL_PARTIES and self.participation == 1,
            f"{rule} needs all sites in every iteration; set quorum to 'all' and participation to 1",
        )
        require(
            not self._hide_singletons and self.small_sites is None,
            f"{rule} replaces the papers' rules; set singletons and small_sites to None",
        )
