"""The first part of a run's script: the fit of a study's method, after the choice of K if the study leaves it open."""

from __future__ import annotations

from fedclust.app.choose_k import Selection, choose_k
from fedclust.app.study import OpenStudy
from fedclust.models import FederatedEstimator


def fit_study(ready: OpenStudy) -> tuple[FederatedEstimator, Selection | None]:
    """Fit a study's method, and choose the number of clusters if the study leaves it open."""
    choice = ready.study.cluster.choice
    if choice is None:
        return ready.estimator.fit(ready.fed), None
    selection = choose_k(ready.estimator, ready.fed, choice.ks, **choice.options)
    if selection.criterion == "evidence":  # an index compares fits, so its model is one of them
        selection.model.fit(ready.fed)
    return selection.model, selection
