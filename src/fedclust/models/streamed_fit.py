"""Updates of the lossless models with batches of new rows, so that the model still counts every row it has seen.

A model's centres v_c and weights n_c stand for all rows it has seen. A new batch starts from the current centres, and
each round moves a centre to the weighted mean of the batch and of what the model has seen before:

    v_c <- (keep n_c v0_c + pull_c) / (keep n_c + mass_c)

Here v0 and n are the centres and weights before the batch; mass and pull are the exact sums of the batch at the current
centres. Rows of earlier batches are not read again, and their memberships stay as they were. The sums are exact, so the
update over sites equals the update on the pooled batch, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.cmeans.fit_result import FitResult, RoundResult
from fedclust.core.effects import Protocol
from fedclust.core.errors import DataError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, PartyId
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation, parse_bounds
from fedclust.models.base import absence_notes, require
from fedclust.models.centers_estimator import CentersEstimator
from fedclust.models.input_checks import check_quorum_reachable
from fedclust.questions import bounds as limits
from fedclust.questions import schema, standardisation
from fedclust.questions.missing_values import missing_value_notes

LATER_BATCH_NOTE = (
    "The model was updated with a further batch. Earlier rows count through their centres and weights and were not "
    "read again."
)


class StreamingEstimator(CentersEstimator):
    """A model that takes batches, because it has sums over all rows to continue from."""

    @property
    def takes_batches(self) -> bool:
        return True

    @property
    def saw_batches(self) -> bool:
        return LATER_BATCH_NOTE in self.notes_

    def update(self, fed: Federation, *, after: Path | None = None) -> Self:  # noqa: ARG002 sites remember nothing
        return self.partial_fit(fed)

    def partial_fit(self, X: Any, y: Any = None, *, keep: float = 1.0) -> Self:  # noqa: ARG002 scikit-learn's signature
        """Update the model with a batch: rows, or a federation whose sites hold new rows.

        The first call is the same as `fit`.

        `keep` is the weight of earlier rows from now on: 1 gives them the same weight as new rows, a lower
        value lets the model follow data that change over time, and 0 starts again from the current centres.
        """
        require(0 <= keep <= 1, f"the parameter 'keep' is {keep}; it must be between 0 and 1")
        if isinstance(X, Federation):
            require(X.split == "rows", "partial_fit works on row splits only; for a column split use fit")
        require(
            self._missing_rule != "partial",
            "partial_fit needs rows without missing values; set missing to 'refuse' or 'drop'",
        )
        if "scaled_centers_" not in vars(self):
            return self.fit(X)
        if not isinstance(X, Federation):
            X = self._validate_rows(X)
            X = federation_of_rows(X, self._column_names(X.shape[1]))
        if tuple(X.columns) != self.columns_:
            raise DataError("the columns differ from those of the first batch; give the same columns in the same order")
        self._check_parameters(X)
        check_quorum_reachable(self.quorum, len(X.parties))
        start = self.initial_centers_
        result, absences = X.run(
            fit_further_batch(self, X, keep),
            quorum=self.quorum,
            missing=self._missing_rule,
            asks_multiple=self._max_asks,
        )
        self.store_result(X, result)
        self.initial_centers_ = start
        self.notes_ = [*absence_notes(absences), LATER_BATCH_NOTE, *self.notes_]
        return self


def fit_further_batch(model: CentersEstimator, fed: Federation, keep: float) -> Protocol[tuple[FitResult, View]]:
    """The script of a later batch. It keeps the scaling of the first batch, so that centres keep their units."""
    width, missing, box = len(fed.columns), model._missing_rule, parse_bounds(model.bounds, len(fed.columns))  # noqa: SLF001
    if fed.declared_schemas:
        yield from schema.check_declarations(fed.declared_schemas, missing)
    if not (yield from limits.total_rows(width, missing)):
        raise DataError("the batch has no rows; skip it")
    gaps = yield from missing_value_notes(fed.columns, missing)
    view = (
        (yield from limits.agree_on_bounds(width, missing)) if box is None else limits.view_from_bounds(*box, missing)
    )
    if model.origin_ is not None and model.spread_ is not None:
        view = standardisation.scale_view(view, model.origin_, model.spread_)
    known, weights = model.scaled_centers_, model.cluster_sizes_ * keep

    def move_by_batch(ask: row_split.CentersQuestion, among: tuple[PartyId, ...] | None) -> Protocol[RoundResult]:
        batch = yield from row_split.one_round(ask, among)
        return combine_with_batch(batch, known, weights)

    fitted = yield from row_split.fit(
        view,
        known,
        m=model.fuzziness,
        tol=model.tol,
        max_iter=model.max_iter,
        parties=fed.parties,
        rng=np.random.default_rng((model.seed_, 2)),
        participation=model.participation,
        singletons=model._hide_singletons,  # noqa: SLF001
        small_sites=model.small_sites == "paper",
        ask_round=move_by_batch,
    )
    return replace(fitted, notes=(*gaps, *fitted.notes)), view


def combine_with_batch(batch: RoundResult, known: Floats, weights: Floats) -> RoundResult:
    """Combine the sums of a batch with known centres; a centre without rows in the batch stays.

    >>> batch = RoundResult(np.array([[4.0], [np.nan]]), np.array([1.0, 0.0]), objective=0.0, hidden=0, abstained=0)
    >>> moved = combine_with_batch(batch, known=np.array([[0.0], [9.0]]), weights=np.array([3.0, 5.0]))
    >>> moved.centers.ravel().tolist(), moved.mass.tolist()
    ([1.0, 9.0], [4.0, 5.0])
    """
    mass = weights + batch.mass
    share = np.where(batch.mass > 0, batch.mass / np.where(mass > 0, mass, 1.0), 0.0)[:, None]
    towards = np.where(batch.mass[:, None] > 0, batch.centers, known)
    # Not marked as complete: the batch's objective may rise from round to round, so it bounds nothing.
    return replace(batch, centers=known + share * (towards - known), mass=mass, everyone_asked=False)
