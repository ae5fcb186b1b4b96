"""What a site answers in a private run of FedCRef: sums to which each row adds at most one term of norm one.

A row's cluster follows from the row and from the question; the site stores only labels that came with the rows. A
question is checked before any row is read, because a later error would reveal something about rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedclust.algorithms.autoencoders import private_gradients as models
from fedclust.algorithms.autoencoders.autoencoder import Weights, count_weights, layers
from fedclust.algorithms.private_kmeans import private_fit
from fedclust.algorithms.private_kmeans.private_questions import MAX_QUESTION_AXES, Box, OffsetsQuestion
from fedclust.core.effects import Keep, handler
from fedclust.core.errors import WireError
from fedclust.core.noise_price import (
    FINITE_ROWS_ONLY,
    Noisy,
    Price,
    PricedQuestion,
    exact_from_noise_units,
    noisy,
    noisy_own,
    unbounded_view,
)
from fedclust.core.question_types import GapsQuestion
from fedclust.core.release import Done
from fedclust.core.ring import Exact, total
from fedclust.core.site_interface import Site
from fedclust.core.study_terms import never_in_study
from fedclust.core.types import Array, Floats, Ints
from fedclust.kernels import bounded_sums, distances, elementary

START_AXES = 16  # along which c-means finds clusters to begin with
AXIS_SPREAD = 0.25  # how far rows lie from their mean along an axis, of the bounds, before they are cut
ERROR_TERM_NORM = math.sqrt(3)  # of a row's count, logarithm and square of it
MAX_LOG_ERROR = 12.0  # errors below e^-12 count as that
WIN_FACTOR = 1.5  # times a cluster's own error: what wins where a site has no other cluster
MAX_QUESTION_MODELS = 1 << 12  # models in a question


@dataclass(frozen=True)
class ClusterRule:
    """A row's cluster: by given labels ("told"), by the nearest of "centers" along axes, or by the best of "models".

    `own` names for each site the centres or models of its clusters, one after the other.
    """

    how: str
    axes: Floats
    points: Floats
    own: dict[str, tuple[int, ...]]

    def for_site(self, party: str) -> ClusterRule:
        """The same for one site alone, its points numbered from 0."""
        own = list(self.own[party])
        points = self.points[own] if len(self.points) else self.points
        return replace(self, points=points, own={party: tuple(range(len(own)))})

    def fits(self, columns: int, weights: int) -> bool:
        """Whether it makes sense for so many columns and weights."""
        if self.axes.ndim != 2 or self.points.ndim != 2 or not are_known(self.own, MAX_QUESTION_MODELS):
            return False
        if self.how == "told":
            return self.points.size == 0
        width = self.axes.shape[1] if self.how == "centers" else weights
        shaped = self.how == "models" or (self.axes.shape[0] == columns and 1 <= width <= MAX_QUESTION_AXES)
        good = self.how in ("centers", "models") and shaped and self.points.shape[1] == width
        tame = all(bool((np.abs(part) <= models.MAX_WEIGHT).all()) for part in (self.axes, self.points))
        return good and tame and are_known(self.own, len(self.points)) and len(self.points) <= MAX_QUESTION_MODELS


@dataclass(frozen=True)
class ModelsQuestion(PricedQuestion):
    """Look at rows by their clusters, and at models; `own` names for each site the model of each of its clusters."""

    price: Price
    box: Box
    sizes: tuple[int, ...]
    rule: ClusterRule
    models: Weights
    own: dict[str, tuple[int, ...]]

    def fits(self, columns: int) -> bool:
        sizes = layers(
            columns, models.PRIVATE_HIDDEN_LAYERS
        )  # no others: what comes back through many layers grows beyond all floats
        if tuple(self.sizes) != sizes or columns > models.MAX_PRIVATE_COLUMNS or self.models.ndim != 2 or not self.own:
            return False
        few = len(self.models) <= MAX_QUESTION_MODELS
        shaped = (
            few and self.models.shape[1] == count_weights(sizes) and are_known(self.own, len(self.models), least=-1)
        )
        alike = self.own.keys() == self.rule.own.keys() and all(
            len(self.own[p]) == len(self.rule.own[p]) for p in self.own
        )
        sound = bool((np.abs(self.models) <= models.MAX_WEIGHT).all())
        return shaped and alike and sound and self.box.fits(columns) and self.rule.fits(columns, count_weights(sizes))


@dataclass(frozen=True)
class GivenLabels(GapsQuestion):
    """The cluster of each row that is not left out, in their order; -1 for none.

    They are sent by one who has the rows: whoever has not cannot know which row a place will be that of.
    """

    labels: Ints
    missing: str = FINITE_ROWS_ONLY

    def rows_with_gaps(self) -> str:
        return self.missing


# It looks at no row, so none are counted for it; yet no budget covers it: labels go by the rows' places, and with one
# row less all later rows would get another's.
@handler(releases=Done, reads="places", contract=never_in_study)
def remember_labels(site: Site, ask: GivenLabels) -> Keep[Done]:
    """Remember clusters to begin with."""
    return Keep(Done(), {**site.memory, "given": ask.labels})


@dataclass(frozen=True)
class SiteSums(Noisy):
    sums: Exact = noisy_own(
        "for each cluster of this site, the sum over its rows of the clipped gradients of its model, or of the "
        "offsets from its centre"
    )


@dataclass(frozen=True)
class CommunityGradients(Noisy):
    sums: Exact = noisy("for each community, the sum over its rows of the clipped gradients of its model")


@dataclass(frozen=True)
class WinCounts(Noisy):
    sums: Exact = noisy(
        "for each cluster, how many of its rows each model reconstructs about as well as the cluster's own model, and "
        "how many rows it has"
    )


@dataclass(frozen=True)
class VoteCounts(Noisy):
    sums: Exact = noisy("for each site and each model, how many of the site's rows the model reconstructs best")


@dataclass(frozen=True)
class NoisyErrors(Noisy):
    sums: Exact = noisy(
        "for each model, how many rows belong to it, the sum of the clipped logarithms of their errors, and the sum "
        "of the squares of these logarithms"
    )


@handler(releases=SiteSums, contract=never_in_study)
def own_sums(site: Site, ask: OffsetsQuestion) -> SiteSums:
    """One round of c-means at this site alone."""
    return SiteSums(private_fit.sum_offsets(site, ask))


@handler(releases=SiteSums, contract=never_in_study)
def own_gradients(site: Site, ask: ModelsQuestion) -> SiteSums:
    """One step of the models of this site's clusters."""
    return SiteSums(_model_gradients(site, ask))


@handler(releases=CommunityGradients, contract=never_in_study)
def community_gradients(site: Site, ask: ModelsQuestion) -> CommunityGradients:
    """One step of the communities' models."""
    return CommunityGradients(_model_gradients(site, ask))


def _model_gradients(site: Site, ask: ModelsQuestion) -> Exact:
    _check_question(ask, site)
    own = np.array([*ask.own.get(site.party, ()), -1], np.int64)  # a row in no cluster is the last one's: no model's
    return _sum_blocks(
        (
            models.sum_clipped_gradients(ask.models, x, own[labels], ask.sizes)
            for x, labels in _labeled_blocks(site, ask)
        ),
        ask.models.shape,
    )


@handler(releases=WinCounts, contract=never_in_study)
def count_wins(site: Site, ask: ModelsQuestion) -> WinCounts:
    """Of the rows of each cluster here, how many each model wins, and how many there are."""
    _check_question(ask, site)
    own = ask.own.get(site.party, ())
    count = len(ask.models)
    unit = int(bounded_sums.UNIT_NORM * bounded_sums.MAX_ROW_NORM / math.sqrt(count + 1))

    def counts(x: Floats, labels: Ints) -> Ints:
        found = np.zeros((count, count + 1), np.int64)
        errors = models.errors(ask.models, x, ask.sizes)
        for cluster, model in enumerate(own):
            rows = labels == cluster
            if model >= 0:
                found[model, :-1] += winning_models(errors[:, rows], own, model).sum(axis=1)
                found[model, -1] += rows.sum()
        return found * unit

    return WinCounts(_sum_blocks((counts(*some) for some in _labeled_blocks(site, ask)), (count, count + 1)))


def winning_models(errors: Floats, own: tuple[int, ...], model: int) -> Floats:
    """Which models win which rows of one model's cluster: E^2 < E_own min E_rival (fedcref_association), row by row."""
    rivals = [other for other in own if other not in (model, -1)]
    if not rivals:
        return np.asarray(errors < WIN_FACTOR * errors[model])
    return np.asarray(errors * errors < errors[model] * errors[rivals].min(axis=0))


@handler(releases=VoteCounts, contract=never_in_study)
def count_votes(site: Site, ask: ModelsQuestion) -> VoteCounts:
    """How many rows here do best on which of the models."""
    _check_question(ask, site)
    own = np.array([*ask.own.get(site.party, ()), 0], np.int64)
    shape = len(ask.own), len(ask.models)
    line = sorted(ask.own).index(site.party) if site.party in ask.own else 0

    def counts(labels: Ints) -> Ints:
        found, here = np.zeros(shape, np.int64), own[labels[labels >= 0]]
        found[line] = np.bincount(here[here >= 0], minlength=shape[1])
        return found * bounded_sums.UNIT_NORM

    return VoteCounts(_sum_blocks((counts(labels) for _, labels in _labeled_blocks(site, ask)), shape))


@handler(releases=NoisyErrors, contract=never_in_study)
def sum_errors(site: Site, ask: ModelsQuestion) -> NoisyErrors:
    """Of each model's rows here their number, and how large their errors are."""
    _check_question(ask, site)
    own = np.array([*ask.own.get(site.party, ()), -1], np.int64)

    def sums(x: Floats, of: Ints) -> Ints:
        errors = models.errors(ask.models, x, ask.sizes)[of, np.arange(len(of))]
        logs = np.clip(-elementary.log(np.maximum(errors, elementary.exp_of(-MAX_LOG_ERROR))) / MAX_LOG_ERROR, 0.0, 1.0)
        terms = np.stack([np.ones(len(of)), logs, logs * logs]) * (bounded_sums.MAX_ROW_NORM / ERROR_TERM_NORM)
        return bounded_sums.sum_by_cell(of, terms, len(ask.models))

    rows = ((x, own[labels]) for x, labels in _labeled_blocks(site, ask))
    return NoisyErrors(_sum_blocks((sums(x[of >= 0], of[of >= 0]) for x, of in rows), (len(ask.models), 3)))


def are_known(own: dict[str, tuple[int, ...]], count: int, least: int = 0) -> bool:
    """Whether all that is named for sites is there."""
    return all(least <= one < count for some in own.values() for one in some)


def _check_question(ask: ModelsQuestion, site: Site) -> None:
    if not ask.fits(len(site.columns)):
        raise WireError(
            "the question does not fit this site's columns, or its arrays differ in size, or its numbers are too large"
        )


def _sum_blocks(blocks: Iterable[Ints], shape: tuple[int, ...]) -> Exact:
    """What the blocks of rows give, added up; sums of any number of rows fit the ring."""
    found = exact_from_noise_units(np.zeros(shape, np.int64))
    for block in blocks:
        found = total([found, exact_from_noise_units(block)])
    return found


def _labeled_blocks(site: Site, ask: ModelsQuestion) -> Iterator[tuple[Floats, Ints]]:
    """Blocks of rows in [0, 1], and the cluster of each row; -1 for none."""
    own, at = ask.rule.own.get(site.party, ()), 0
    given = np.asarray(site.memory.get("given", np.zeros(0)), np.int64)
    for block in site.blocks(unbounded_view(len(site.columns))):
        z, x = scale_rows(ask.box, block)
        if not own:
            labels = np.full(len(x), -1, np.int64)
        elif ask.rule.how == "told":
            labels = np.full(len(x), -1, np.int64)
            some = given[at : at + len(x)]
            labels[: len(some)] = np.where((some >= 0) & (some < len(own)), some, -1)
        else:
            labels = assign_rows(ask.rule, list(own), z, x, ask.sizes)
        at += len(x)
        yield x, labels


def scale_rows(box: Box, block: Array) -> tuple[Floats, Floats]:
    """A block of columns as seen from the middle of the bounds, and its rows as models see them, in [0, 1]."""
    z = box.scale_block(block)
    return z, models.round_values(z.T + 0.5)


def assign_rows(rule: ClusterRule, own: list[int], z: Floats, x: Floats, sizes: tuple[int, ...]) -> Ints:
    """The cluster of each row by the nearest centre or the best model of those that are a site's own."""
    if rule.how == "centers":
        y = private_fit.project_rows(z, rule.axes)
        return np.asarray(distances.nearest_centers(y, rule.points[own])[0], np.int64)
    return np.asarray(models.errors(rule.points[own], x, sizes).argmin(axis=0), np.int64)
