"""Computes validation indices of a fitted model over a federation, from sums over all parties.

Each function takes a fitted model and a federation (or rows), split by rows or columns. It uses the scale of the model,
and memberships 0 and 1 for hard models. Each value equals the value on pooled rows, bit for bit.

>>> import numpy as np, fedclust as fc
>>> a, b = np.array([[0.0], [2.0], [10.0]]), np.array([[12.0]])
>>> fed = fc.Federation.local({"a": a, "b": b})
>>> davies_bouldin(fc.KMeans(2, init=[[0.0], [9.0]]).fit(fed), fed)  # (1 + 1) / (11 - 1)
0.2
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedclust.algorithms.cmeans import column_split
from fedclust.core.effects import Protocol
from fedclust.core.errors import StudyError
from fedclust.core.site_interface import View
from fedclust.core.types import Floats
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import SHORT_PROTOCOL_ASKS, Federation, parse_bounds
from fedclust.models.assignment import CentersModel, model_with_centers
from fedclust.models.base import Model
from fedclust.questions import bounds, cluster_indices, cluster_indices_columns, column_matching, standardisation
from fedclust.questions.cluster_indices import BEST_DIRECTION
from fedclust.site.sources.frames import is_frame

__all__ = [
    "BEST_DIRECTION",
    "calinski_harabasz",
    "davies_bouldin",
    "fuzzy_davies_bouldin",
    "partition_coefficient",
    "partition_entropy",
    "scores",
    "simplified_silhouette",
    "xie_beni",
]


def fuzzy_davies_bouldin(model: Model, fed: Any, *, p: float = 2.0, q: float = 1.0) -> float:
    """Return the index of paper 2; smaller is better, infinite if two centres coincide.

    S_i = mean_j(u_ij) * mean_j(|x_j - c_i|^q)^(1/q) over all rows, M_ij the Minkowski distance of order p between
    centres; the index is the mean over i of max_{j != i} (S_i + S_j) / M_ij.
    """
    return _single_index("fuzzy-davies-bouldin", model, fed, p=p, q=q)


def davies_bouldin(model: Model, fed: Any) -> float:
    """Return Davies and Bouldin's index of the labels around their means, as scikit-learn does; smaller is better."""
    return _single_index("davies-bouldin", model, fed)


def xie_beni(model: Model, fed: Any) -> float:
    """Return Xie and Beni's sum u^m d^2 / (N min |v_i - v_j|^2); smaller is better, infinite if centres coincide."""
    return _single_index("xie-beni", model, fed)


def calinski_harabasz(model: Model, fed: Any) -> float:
    """Return the variance between labels over that within, as scikit-learn does; larger is better, can be infinite."""
    return _single_index("calinski-harabasz", model, fed)


def simplified_silhouette(model: Model, fed: Any) -> float:
    """Return the mean of (b - a) / max(a, b), with distances a and b to the two nearest centres; larger is better."""
    return _single_index("simplified-silhouette", model, fed)


def partition_coefficient(model: Model, fed: Any) -> float:
    """Return Bezdek's mean of squared memberships, from 1 / C (no structure) to 1 (hard)."""
    return _single_index("partition-coefficient", model, fed)


def partition_entropy(model: Model, fed: Any) -> float:
    """Return Bezdek's mean of -u log u, from 0 (hard) to log C (no structure)."""
    return _single_index("partition-entropy", model, fed)


def scores(
    model: Model, fed: Any, names: Iterable[str] = tuple(BEST_DIRECTION), *, p: float = 2.0, q: float = 1.0
) -> dict[str, float]:
    """Compute several indices together: those of centres share one pass over the rows, and those of labels another."""
    check_is_fitted(model)
    model = model_with_centers(model, "an index")
    if not isinstance(fed, Federation):
        rows = fed if is_frame(fed) else np.asarray(fed)
        fed = federation_of_rows(rows, model.columns_)
    if fed.split == "columns" and model.opens_labels:
        raise StudyError(
            "an index over a column split needs distances, but this model reveals only labels; set opens to 'distances'"
        )
    script = _indices_over_columns if fed.split == "columns" else _indices_over_rows
    found: dict[str, float] = fed.run(
        script(model, fed, tuple(names), p, q), missing=model.missing, asks_multiple=SHORT_PROTOCOL_ASKS
    )[0]
    return found


def _single_index(name: str, model: Model, fed: Any, **powers: float) -> float:
    return scores(model, fed, (name,), **powers)[name]


def _indices_over_rows(
    model: CentersModel, fed: Federation, names: tuple[str, ...], p: float, q: float
) -> Protocol[dict[str, float]]:
    view, centers = yield from model_view(model, fed)
    return (yield from cluster_indices.compute_indices(view, centers, model.fuzziness, names, p=p, q=q))


def model_view(model: CentersModel, fed: Federation) -> Protocol[tuple[View, Floats]]:
    """Return the model's view of the columns of a row split, with valid bounds, and its centres in that view."""
    order = _column_order(model, fed)
    box, missing = parse_bounds(model.bounds, len(order)), model.missing
    if box is None:
        view = yield from bounds.agree_on_bounds(len(order), missing)
    else:
        view = bounds.view_from_bounds(box[0][order], box[1][order], missing)
    if model.origin_ is not None and model.spread_ is not None:
        view = standardisation.scale_view(view, model.origin_[order], model.spread_[order])
    return view, np.ascontiguousarray(model.scaled_centers_[:, order])


def _indices_over_columns(
    model: CentersModel, fed: Federation, names: tuple[str, ...], p: float, q: float
) -> Protocol[dict[str, float]]:
    order = _column_order(model, fed)

    def slices(points: Floats | None) -> dict[str, Floats]:
        return {} if points is None else column_split.slices(fed.column_places, np.atleast_2d(points)[:, order])

    centers, origin, spread = map(slices, (model.cluster_centers_, model.origin_, model.spread_))
    how = {
        party: column_split.Preparation(
            origin=origin[party][0] if origin else None,
            spread=spread[party][0] if spread else None,
            centers=centers[party],
        )
        for party in fed.parties
    }
    table = yield from column_split.agree_on_table(fed.column_places, how)
    return (
        yield from cluster_indices_columns.compute_indices(table, model.n_clusters, model.fuzziness, names, p=p, q=q)
    )


def _column_order(model: Model, fed: Federation) -> list[int]:
    """Return the position of each of the federation's columns in the model, by name if there are names."""
    return column_matching.match_columns(fed.columns, model.columns_, fed.schema, model.schema)
