"""Whether two models part the same rows alike, found without a label leaving a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, handler, total
from fedclust.core.errors import WireError
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Floats, Ints
from fedclust.questions.pca import nearest_centers

MAX_PAIRS = 2**20  # pairs of centres: a short question must not ask a site for more memory than it has


@dataclass(frozen=True)
class ModelPair(GapsQuestion):
    """Two sets of centres, each in a view of its own."""

    first: View
    second: View
    one: Floats
    other: Floats
    missing: str

    def rows_with_gaps(self) -> str:
        return self.missing


@dataclass(frozen=True)
class SharedRows(Release):
    table: Exact = additive(
        "for each centre of one model and each centre of another model, how many rows are nearest to both", cells=True
    )


@handler(releases=SharedRows, contract=never_in_study)
def count_shared_rows(site: Site, ask: ModelPair) -> SharedRows:
    """Rows by their nearest centre in either model."""
    if len(ask.one) * len(ask.other) > MAX_PAIRS:
        raise WireError("the question has more pairs of centres than a site accepts")
    table = np.zeros((len(ask.one), len(ask.other)), np.int64)
    for seen, again in zip(site.blocks(ask.first), site.blocks(ask.second), strict=True):
        pair = nearest_centers(seen, ask.one, ask.missing), nearest_centers(again, ask.other, ask.missing)
        np.add.at(table, pair, 1)
    return SharedRows(Exact.from_counts(table))


def is_same_partition(ask: ModelPair) -> Protocol[bool]:
    """Whether both part all rows into the same clusters, whatever those are called."""
    found = (yield from total(count_shared_rows, ask)).table
    return is_one_to_one(np.array(found.to_integers(), np.int64).reshape(found.shape))


def is_one_to_one(table: Ints) -> bool:
    """Whether each cluster of one meets one cluster of the other.

    >>> is_one_to_one(np.array([[0, 3], [4, 0]])), is_one_to_one(np.array([[3, 1], [0, 4]]))
    (True, False)
    """
    met = table > 0
    return bool((met.sum(axis=0) <= 1).all() and (met.sum(axis=1) <= 1).all())
