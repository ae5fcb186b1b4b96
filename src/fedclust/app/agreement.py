"""Measures how well two clusterings agree: with each other, with known classes, and in their centres.

`contingency` counts (cluster, class) pairs over a federation, for evaluation. `ari`, `ami`, `nmi` and `accuracy` take
such a table, or two arrays of labels.

>>> ari([0, 0, 1, 1], ["b", "b", "a", "a"])
1.0
>>> import numpy as np, fedclust as fc
>>> fed = fc.Federation.local({"a": np.array([[0.0], [1.0]]), "b": np.array([[9.0], [8.0], [1.0]])})
>>> model = fc.KMeans(2, init=[[0.0], [9.0]]).fit(fed)
>>> table = contingency(model, fed, {"a": ["low", "low"], "b": ["high", "high", "high"]})
>>> table.tolist(), accuracy(table)
([[1, 2], [2, 0]], 0.8)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedclust.app.indices import model_view
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol
from fedclust.core.errors import DataError, StudyError
from fedclust.core.types import Array, Floats, Ints
from fedclust.federation.federation import Federation
from fedclust.models.assignment import model_with_centers
from fedclust.models.base import Model
from fedclust.questions import bounds, label_agreement, standardisation

__all__ = ["accuracy", "ami", "ari", "contingency", "displacement", "knowledge_gap", "nmi"]


def contingency(model: Model, fed: Federation, truth: Mapping[str, Any] | Any) -> Ints:
    """Count the rows of each cluster that belong to each class, in the order of the classes.

    `truth` gives the class of each row that takes part: {party: classes}, in the order of each site's table. In a
    column split all parties have the same rows, so `truth` is one array, in the order of the tables. If the rows are
    matched by an `id`, the array is in ascending order of the ids (`fed.ids`), or `truth` is {id: class} in any order.
    The classes are sent to the sites, and the sites return only counts over all parties. Use this for evaluation.
    """
    check_is_fitted(model)
    model = model_with_centers(model, "a table of clusters and classes")
    if fed.split == "columns":
        classes = _classes_in_id_order(truth, fed) if isinstance(truth, Mapping) else truth
        return contingency_table(model.predict(fed), classes, clusters=model.n_clusters)
    if not isinstance(truth, Mapping) or set(truth) != set(fed.parties):
        raise DataError(f"truth must map each site to the classes of its rows; the sites are {', '.join(fed.parties)}")
    own = {party: np.asarray(truth[party]).ravel() for party in fed.parties}
    _, codes = np.unique(np.concatenate(list(own.values())), return_inverse=True)
    ends = np.cumsum([len(labels) for labels in own.values()])[:-1]
    coded = dict(zip(own, np.split(codes.astype(np.int64), ends), strict=True))

    def script() -> Protocol[Ints]:
        view, centers = yield from model_view(model, fed)
        return (yield from label_agreement.contingency(view, centers, coded, int(codes.max(initial=0)) + 1))

    return fed.run(script(), missing=model.missing)[0]


def ari(first: Any, second: Any = None) -> float:
    """Return the adjusted Rand index of a table, or of two arrays of labels: 1 if equal, about 0 by chance."""
    return _apply_index(label_agreement.ari, first, second)


def ami(first: Any, second: Any = None) -> float:
    """Return the adjusted mutual information of a table, or of two arrays of labels: 1 if equal, about 0 by chance."""
    return _apply_index(label_agreement.ami, first, second)


def nmi(first: Any, second: Any = None) -> float:
    """Return the normalised mutual information of a table, or of two arrays of labels: 1 for equal clusters."""
    return _apply_index(label_agreement.nmi, first, second)


def accuracy(first: Any, second: Any = None) -> float:
    """Return the share of rows in the right cluster, under the best matching of clusters to classes."""
    return _apply_index(label_agreement.accuracy, first, second)


def knowledge_gap(centers: Any, truth: Any, variances: Any) -> float:
    """Return the knowledge gap of paper 2: how far centres are from the true centres, in standard deviations.

    gap = sum_k sqrt(sum_f (c_kf - t_kf)^2 / Var_f), where each centre is matched with a true one so that the gap is
    smallest (Eq. 19). `variances` are the variances of the pooled columns, or a federation that computes them exactly.

    >>> knowledge_gap([[0.0, 0.0], [8.0, 2.0]], [[8.0, 0.0], [0.0, 3.0]], variances=[4.0, 1.0])
    5.0
    """
    A, B = _check_same_shape(centers, truth)
    spread = np.sqrt(
        _pooled_variances(variances) if isinstance(variances, Federation) else np.asarray(variances, np.float64)
    )
    if not (spread > 0).all():
        raise StudyError("the knowledge gap is not defined for a column without variance; leave constant columns out")
    apart = np.sqrt((((A[:, None] - B) / spread) ** 2).sum(axis=2))
    return math.fsum(apart[label_agreement.least_cost_matching(apart)].tolist())


def displacement(first: Any, second: Any) -> float:
    """Return the Frobenius norm of the difference of two sets of centres, matched so that it is smallest.

    >>> displacement([[0.0], [5.0]], [[9.0], [3.0]])
    5.0
    """
    A, B = _check_same_shape(first, second)
    squared = ((A[:, None] - B) ** 2).sum(axis=2)
    return math.sqrt(math.fsum(squared[label_agreement.least_cost_matching(squared)].tolist()))


def contingency_table(labels: Any, truth: Any, *, clusters: int | None = None) -> Ints:
    """Count the rows of each label in each class; with `clusters`, labels start at 0 and may be unused."""
    rows, columns = np.asarray(labels).ravel(), np.asarray(truth).ravel()
    if len(rows) != len(columns):
        raise DataError(
            f"{len(rows)} labels cannot be compared with {len(columns)} classes; give one of each for every row"
        )
    if clusters is None:
        names, rows = np.unique(rows, return_inverse=True)
        clusters = len(names)
    classes, codes = np.unique(columns, return_inverse=True)
    table = np.zeros((clusters, len(classes)), np.int64)
    np.add.at(table, (rows, codes), 1)
    return table


def _apply_index(index: Callable[[Ints], float], first: Any, second: Any) -> float:
    table = np.asarray(first) if second is None else contingency_table(first, second)
    if table.ndim != 2 or table.dtype.kind not in "iu" or not table.sum():
        raise DataError(
            "give a table of counts (whole numbers, not all 0), or two arrays of labels with at least one row"
        )
    return index(table.astype(np.int64))


def _classes_in_id_order(truth: Mapping[Any, Any], fed: Federation) -> list[Any]:
    """Return the class of each row in the order of the labels."""
    if (ids := fed.ids) is None:
        raise DataError(
            "truth maps ids to classes, but the sites' rows have no ids; give one class for each row, or open the "
            "federation with `id`"
        )
    known = {str(name): label for name, label in truth.items()}  # files have ids as text
    if lacking := sum(str(name) not in known for name in ids):
        raise DataError(f"truth gives no class for {count_noun(lacking, 'row')}; give a class for each id")
    return [known[str(name)] for name in ids]


def _check_same_shape(first: Any, second: Any) -> tuple[Floats, Floats]:
    A, B = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if A.shape != B.shape or A.ndim != 2:
        raise StudyError(
            f"centres of shapes {A.shape} and {B.shape} cannot be matched; give two sets of the same shape"
        )
    return A, B


def _pooled_variances(fed: Federation) -> Array:
    """Ask a federation for the exact variances of its pooled columns."""

    def script() -> Protocol[Floats]:
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        return (yield from standardisation.column_statistics(view)).sd ** 2

    return fed.run(script())[0]
