"""Which questions with noise a study asks: at its own prices, within its own bounds, and for at most K clusters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedclust.core.study_terms import StudyTerms

if TYPE_CHECKING:
    from fedclust.algorithms.private_kmeans.private_questions import (
        Box,
        GridQuestion,
        LengthsQuestion,
        MomentsQuestion,
        OffsetsQuestion,
    )
    from fedclust.core.noise_price import Price

MAX_BINS = 4096  # cells of a histogram


def _is_paid(terms: StudyTerms, question: str, price: Price, box: Box) -> bool:
    """Whether a question has one of the study's prices for it, and the study's bounds."""
    own = terms.low is not None and terms.high is not None and terms.box_unit is not None and terms.is_private
    if not own or price.honest != terms.honest or price.rho not in terms.prices.get(question, ()):
        return False
    pairs = ((box.low, terms.low), (box.high, terms.high), (box.unit, terms.box_unit))
    return all(np.array_equal(one, other) for one, other in pairs if other is not None)


def fits_lengths(terms: StudyTerms, ask: LengthsQuestion) -> bool:
    """The histogram of lengths."""
    return ask.fits(terms.columns) and _is_paid(terms, "lengths", ask.price, ask.box)


def fits_second_moments(terms: StudyTerms, ask: MomentsQuestion) -> bool:
    """The second moments of the columns."""
    return ask.fits(terms.columns) and _is_paid(terms, "moments", ask.price, ask.box)


def fits_grid(terms: StudyTerms, ask: GridQuestion) -> bool:
    """The histogram on the first axes."""
    few = ask.fits(terms.columns) and math.prod(ask.bins.tolist()) <= MAX_BINS
    return few and _is_paid(terms, "grid", ask.price, ask.box)


def fits_offsets(terms: StudyTerms, ask: OffsetsQuestion) -> bool:
    """A round around at most K centres."""
    few = ask.fits(terms.columns) and len(ask.centers) <= terms.max_clusters and ask.axes.shape[1] <= terms.columns
    return few and _is_paid(terms, "offsets", ask.price, ask.box)
