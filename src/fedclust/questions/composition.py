"""How many rows of each site are in each cluster, as far as each site's policy allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.core.effects import Protocol, each, handler
from fedclust.core.question_types import ViewedQuestion
from fedclust.core.release import Release, counts
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Bools, Floats, Ints, PartyId
from fedclust.questions.pca import nearest_centers
from fedclust.questions.question_contracts import fits_composition


@dataclass(frozen=True)
class CompositionQuestion(ViewedQuestion):
    """Count rows by their nearest centre."""

    view: View
    centers: Floats


@dataclass(frozen=True)
class Composition(Release):
    rows: Ints = counts("how many rows of this site are nearest to each centre")

    @classmethod
    def plausible(cls, parts: Sequence[Composition], ask: CompositionQuestion) -> Bools:
        """Besides: a count for each centre."""
        fits = np.array([part.rows.shape == ask.centers.shape[:1] for part in parts], bool)
        return np.asarray(super().plausible(parts, ask) & fits)


# Of the sides of many planes a row is found: a site that masks its sums does not say how its rows spread.
@handler(releases=Composition, max_distinct=3, plain_only=True, contract=fits_composition)
def composition(site: Site, ask: CompositionQuestion) -> Composition:
    """Rows of this site by nearest centre."""
    counts = np.zeros(len(ask.centers), np.int64)
    for block in site.blocks(ask.view):
        counts += np.bincount(nearest_centers(block, ask.centers, ask.view.missing), minlength=len(counts))
    return Composition(counts)


def compositions(view: View, centers: Floats) -> Protocol[dict[PartyId, Ints]]:
    """Each party's counts; `HIDDEN` where its policy hides one."""
    answers = yield from each(composition, CompositionQuestion(view, centers))
    return {party: answer.rows for party, answer in answers.items()}
