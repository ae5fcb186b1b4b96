"""The mode of `KMeans` that reveals only each row's label over a column split."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.algorithms.cmeans import column_labels, column_split
from fedclust.core.effects import Protocol
from fedclust.core.types import Ints
from fedclust.federation.federation import Federation
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.input_checks import require
from fedclust.privacy.secret_argmin import SEATS

OPENS_CHOICES = ("distances", "labels")
LABELS_ONLY_NOTE = (
    "Only labels were revealed. There is no objective; the shift of a round is the number of rows that changed cluster."
)


class LabelsOnlyEstimator(CentersEstimator):
    """What `opens="labels"` changes."""

    opens: str
    inertia_: float | None  # None where only labels are opened

    @property
    def opens_labels(self) -> bool:
        return self.opens == "labels"

    def _check_opens(self, fed: Federation) -> None:
        require(
            self.opens in OPENS_CHOICES,
            f"the parameter 'opens' is {self.opens!r}; choose one of {', '.join(OPENS_CHOICES)}",
        )
        if not self.opens_labels:
            return
        require(
            fed.split == "columns",
            "opens='labels' works on column splits only; in a row split labels never leave the sites",
        )
        enough = len(fed.parties) >= SEATS
        require(
            enough,
            "opens='labels' needs at least three sites that do not collude; add a site, or use opens='distances'",
        )
        by_distances = isinstance(self.init, str) and self.init != "box"
        require(
            not by_distances,
            f"init='{self.init}' needs distances, but opens='labels' does not reveal them; use init='box'",
        )

    def _check_parameters(self, fed: Federation) -> None:
        super()._check_parameters(fed)
        self._check_opens(fed)

    def _iterate_columns(self, fed: Federation, table: column_split.JointTable) -> Protocol[column_split.ColumnFit]:
        if not self.opens_labels:
            return super()._iterate_columns(fed, table)
        return column_labels.fit(
            table,
            fed.parties,
            n_clusters=self.n_clusters,
            stop_when_stable=self.tol is not None and not fed.aggregation.has_fixed_rounds,
            max_iter=self.max_iter,
            seed=self.seed_,
            reveal_slices=fed.local_sites.all_allow(column_split.reveal),
        )

    def store_result(self, fed: Federation, result: Any) -> None:
        super().store_result(fed, result)
        if self.opens_labels:
            self.inertia_ = None
            self.history_ = [{**entry, "objective": None} for entry in self.history_]
            self.notes_ = [*self.notes_, LABELS_ONLY_NOTE]

    def _predict_federation(self, fed: Federation) -> NDArray[np.int32]:
        if fed.split != "columns" or not self.opens_labels:
            return super()._predict_federation(fed)
        self._check_opens(fed)

        def script() -> Protocol[Ints]:
            table = yield from column_split.agree_on_table(fed.column_places, self._slices_by_site(fed))
            seats = yield from column_labels.assign_seats(fed.parties, self.n_clusters)
            return (yield from column_labels.label_rows(table, seats, fed.parties, self.n_clusters))

        return fed.run(script())[0].astype(np.int32)
