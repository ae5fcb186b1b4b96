"""C-means over columns that opens each row's label and nothing else; a part of `KMeans`."""

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

OPENS = ("distances", "labels")
NOTE = "Only labels were opened: there is no objective, and a round's shift is how many rows changed their cluster."


class LabelsOnly(CentersEstimator):
    """What `opens="labels"` changes."""

    opens: str
    inertia_: float | None  # None where only labels are opened

    @property
    def opens_labels(self) -> bool:
        return self.opens == "labels"

    def _check_opens(self, fed: Federation) -> None:
        require(self.opens in OPENS, f"opens is {self.opens!r}; choose one of {', '.join(OPENS)}")
        if not self.opens_labels:
            return
        require(fed.split == "columns", "opens 'labels' is for column splits; over rows, labels never leave the sites")
        enough = len(fed.parties) >= SEATS
        require(enough, "opens 'labels' needs three sites to compute on shares, no two of which put theirs together")
        careful = isinstance(self.init, str) and self.init == "careful"
        require(not careful, "init 'careful' draws rows by their distances, which opens 'labels' hides; use 'box'")

    def _check(self, fed: Federation) -> None:
        super()._check(fed)
        self._check_opens(fed)

    def _iterate_columns(
        self, fed: Federation, table: column_split.Table, *, careful: bool
    ) -> Protocol[column_split.Settled]:
        if not self.opens_labels:
            return super()._iterate_columns(fed, table, careful=careful)
        return column_labels.fit(
            table,
            fed.parties,
            n_clusters=self.n_clusters,
            settle=self.tol is not None and not fed.aggregation.fixed_rounds,
            max_iter=self.max_iter,
            seed=self.seed_,
            show=fed.local_sites.allow(column_split.reveal),
        )

    def _keep(self, fed: Federation, result: Any) -> None:
        super()._keep(fed, result)
        if self.opens_labels:
            self.inertia_ = None
            self.history_ = [{**entry, "objective": None} for entry in self.history_]
            self.notes_ = [*self.notes_, NOTE]

    def _predict_federation(self, fed: Federation) -> NDArray[np.int32]:
        if fed.split != "columns" or not self.opens_labels:
            return super()._predict_federation(fed)
        self._check_opens(fed)

        def script() -> Protocol[Ints]:
            table = yield from column_split.agree(fed.places, self._prepared(fed))
            seats = yield from column_labels.seated(fed.parties, self.n_clusters)
            return (yield from column_labels.labelled(table, seats, fed.parties, self.n_clusters))

        return fed.run(script())[0].astype(np.int32)
