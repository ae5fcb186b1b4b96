"""Labels and memberships of rows, given the centres of a fitted model; columns are matched by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.algorithms.gaussian_mixture.densities import Gaussians
from fedclust.core.effects import Protocol
from fedclust.core.errors import DataError, StudyError
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Floats, Ints, Units
from fedclust.federation.federation import MAX_MAGNITUDE, Federation
from fedclust.kernels import distances, fuzzy_sweep
from fedclust.kernels import gap_sweep as gapped
from fedclust.models.base import FederatedEstimator, Model, block_from_rows
from fedclust.models.input_checks import check_magnitudes
from fedclust.questions import column_matching
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source, survey
from fedclust.site.sources.frames import is_frame


class CentersModel(FederatedEstimator):
    """A model with centres that assigns every row to the nearest one."""

    n_clusters: int
    cluster_centers_: Floats
    scaled_centers_: Floats
    cluster_sizes_: Floats

    @property
    def opening_floor(self) -> int:
        """The fewest rows behind a sum that is opened while the number of clusters is chosen."""
        return 1

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Return the nearest centre of each row; the rows of a federation come in the order of its sites.

        Columns of a federation are matched by name. For a column split with an `id`, rows are in the order of the ids.
        """
        if isinstance(X, Federation):
            return self._predict_federation(X)
        return self.labels_in_view(self._rows_in_view(X))

    def _predict_federation(self, fed: Federation) -> NDArray[np.int32]:
        if fed.split == "columns":
            return self._measure_distances(fed)[1]
        return np.concatenate([self.labels_in_view(block) for block in self._row_blocks(fed)])

    def _squared_distances(self, fed: Federation) -> Floats:
        """Return the squared distances over a column split, computed from totals."""
        return self._measure_distances(fed)[0]

    def _measure_distances(self, fed: Federation) -> tuple[Floats, Units]:
        """Return squared distances and nearest centres over a column split."""

        def script() -> Protocol[tuple[Floats, Units]]:
            table = yield from column_split.agree_on_table(fed.column_places, self._slices_by_site(fed))
            return (yield from column_split.distances_and_labels(table, self.n_clusters))

        return fed.run(script())[0]

    def _slices_by_site(self, fed: Federation) -> dict[str, column_split.Preparation]:
        """Return the model's centres and scales, split by the sites that hold their columns."""
        order = self._column_order(fed)
        if type(self).labels_in_view is not CentersModel.labels_in_view:  # such a model has more than centres
            raise self._whole_rows_error()

        def slices(points: Floats) -> dict[str, Floats]:
            return column_split.slices(fed.column_places, np.atleast_2d(points)[:, order])

        centers = slices(self.cluster_centers_)
        origin = None if self.origin_ is None else slices(self.origin_)
        spread = None if self.spread_ is None else slices(self.spread_)
        return {
            p: column_split.Preparation(
                origin=origin[p][0] if origin else None, spread=spread[p][0] if spread else None, centers=centers[p]
            )
            for p in fed.parties
        }

    def _column_order(self, fed: Federation) -> list[int]:
        """Return the position of each of the federation's columns in the model."""
        check_is_fitted(self)
        return column_matching.match_columns(fed.columns, self.columns_, fed.schema, self.schema)

    def _whole_rows_error(self) -> DataError:
        return DataError(f"{type(self).__name__} works on row splits only; give it a federation with split 'rows'")

    def _row_blocks(self, fed: Federation) -> list[Array]:
        """Return the rows of a row split, with columns in the model's order."""
        found = column_matching.inverse(self._column_order(fed))
        if fed.split == "columns":
            raise self._whole_rows_error()
        if not fed.site_data:
            raise DataError("labels stay at the sites; to get them, run 'fedclust site assign' at each site")
        for party, own_data in fed.site_data.items():
            if (own_data.survey_for(self._missing_rule).largest > MAX_MAGNITUDE).any():
                check_magnitudes(own_data.source.columns, own_data.source.blocks(), party)
        return [block for own_data in fed.site_data.values() for block in self._view_blocks(own_data, found)]

    def _view_blocks(self, site_data: SiteData, order: Ints | None = None) -> Iterator[Array]:
        """Yield all rows of a site in this process, including those left out because of missing values."""
        view = self._own_view()
        return (view.transform(block if order is None else block[order]) for block in site_data.source.blocks())

    def labels_of_block(self, block: Array) -> NDArray[np.int32]:
        """Return the nearest centre of each row in a block of unscaled columns, with levels already encoded."""
        return self.labels_in_view(self._transform_block(block))

    def _transform_block(self, block: Array) -> Array:
        """Return such a block in the view of the model."""
        check_is_fitted(self)
        check_magnitudes(self.columns_, [self._rows_taking_part(block)])
        return self._own_view().transform(block)

    def _rows_taking_part(self, block: Array) -> Array:
        """Return the rows of a block that are not left out because of missing values."""
        return block[:, ~np.isnan(block).any(axis=0)] if self._missing_rule == "drop" else block

    def labels_in_view(self, block: Array) -> NDArray[np.int32]:
        """Return the label of each row of a block (columns by rows) in the model's view: by default the nearest centre.

        A row that is left out because of missing values gets -1.
        Override it in a model that labels rows in another way; such a model works on row splits only.
        """
        if self._missing_rule == "refuse":
            return distances.nearest_centers(block, self.scaled_centers_)[0]
        if self._missing_rule == "partial":
            return gapped.partial_labels(block, self.scaled_centers_)
        gap = np.isnan(block).any(axis=0)
        return np.where(gap, -1, distances.nearest_centers(np.where(gap, 0.0, block), self.scaled_centers_)[0]).astype(
            np.int32
        )

    def _rows_in_view(self, X: Any) -> Array:
        """Return raw rows as a block in the model's view, matched by name and with levels encoded if declared."""
        check_is_fitted(self)
        declared = self.schema
        by_name = is_frame(X) and not self._knows_names
        if by_name or any(not column.is_plain for column in declared.values()):
            source = open_source(X, columns=tuple(declared), site="here", schema=declared)
            survey(source, self._missing_rule)
            return self._transform_block(np.concatenate(list(source.blocks()), axis=1))
        rows = self._validate_rows(X)
        check_magnitudes(self.columns_, [self._rows_taking_part(rows.T)])
        return block_from_rows(self._own_view().transform_points(rows))

    def keep_centers(self, fed: Federation, view: View, centers: Floats) -> None:
        """Store centres in the units of a view and in original units, and label the rows that are in memory here."""
        self.origin_, self.spread_ = view.origin, view.spread
        self.scaled_centers_, self.cluster_centers_ = centers, view.to_original_units(centers)
        if fed.site_data and all(own_data.source.resident for own_data in fed.site_data.values()):
            blocks = [block for held in fed.site_data.values() for block in self._view_blocks(held)]
            self.labels_ = np.concatenate([self.labels_in_view(block) for block in blocks])

    def memberships_of_block(self, block: Array) -> Floats | None:  # noqa: ARG002 a hard model looks at no row for that
        """Return the memberships (clusters by rows) of a block of unscaled columns; None for a hard model."""
        return None

    def evaluator(self, view: View | None = None) -> tuple[Gaussians, Floats | None]:
        """Return the densities that label rows, in the model's own view or another, and the whitening matrix."""
        centers = self.scaled_centers_ if view is None else view.transform_points(self.cluster_centers_)
        return mixture.nearest_gaussians(centers), None

    def _own_view(self) -> View:
        return View(np.zeros(len(self.columns_), np.int32), self.origin_, self.spread_, self._missing_rule)


class FuzzyCentersModel(CentersModel):
    """A model with centres in which every row has a membership in each cluster."""

    @property
    def is_soft(self) -> bool:
        return True

    def memberships(self, X: Any) -> Floats:
        """Return the membership of each row in each cluster, rows by clusters."""
        if isinstance(X, Federation):
            if X.split == "columns":
                return fuzzy_sweep.memberships_from_distances(self._squared_distances(X), self.fuzziness).T
            return np.concatenate([self._block_memberships(block).T for block in self._row_blocks(X)])
        return self._block_memberships(self._rows_in_view(X)).T

    def memberships_of_block(self, block: Array) -> Floats:
        """Return the memberships (clusters by rows) of a block of unscaled columns."""
        return self._block_memberships(self._transform_block(block))

    def _block_memberships(self, block: Array) -> Floats:
        """Return memberships; NaN for a row that is left out because of missing values."""
        if self._missing_rule == "partial":
            return gapped.partial_memberships(block, self.scaled_centers_, self.fuzziness)
        gap = np.isnan(block).any(axis=0)
        if self._missing_rule == "refuse" or not gap.any():
            return fuzzy_sweep.memberships(block, self.scaled_centers_, self.fuzziness)
        return np.where(
            gap, np.nan, fuzzy_sweep.memberships(np.where(gap, 0.0, block), self.scaled_centers_, self.fuzziness)
        )


def model_with_centers(model: Model, purpose: str) -> CentersModel:
    """Return the model if it has centres, else refuse; `purpose` names what needs them."""
    if not isinstance(model, CentersModel):
        raise StudyError(f"{purpose} needs centres, and {type(model).__name__} has none; use a method such as KMeans")
    return model
