"""The estimator `DEC`: deep embedded clustering of the rows of one place."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedclust.algorithms import dec
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol
from fedclust.core.types import Floats
from fedclust.federation.derived_federations import SINGLE_SITE
from fedclust.federation.federation import Federation
from fedclust.models.base import FederatedEstimator, require


class DEC(FederatedEstimator):
    """Deep embedded clustering (Xie et al.) of the rows of one site; `FedCRef` can start with it (`init="dec"`).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    encoder : tuple of int
        Sizes of the encoder's layers after the input.
    layer_steps, fine_steps : int, default=500 and 2000
        Batches of pretraining for each layer, and for all layers together. The published values are 50,000 and 100,000.
    refresh, tolerance, max_steps : int, float and int, default=140, 0.001 and 20000
        Refinement recomputes its targets every `refresh` steps. It stops when less than the share `tolerance` of the
        rows changed cluster between two such computations, or after `max_steps` steps.
    device : {"cpu", "cuda"}, default="cpu"
        The device on which the model is trained.
    random_state : int, NumPy generator or None, default=0
        Seed of all random draws.

    Attributes
    ----------
    layers_, scale_, code_centers_
        The encoder, the factor that rows are multiplied by, and the centres in the encoder's code.
    labels_, n_iter_ : array and int
        Cluster of each row, and steps of refinement.
    """

    lossless: ClassVar[bool] = False
    saved_attributes: ClassVar[tuple[str, ...]] = ("layers_", "scale_", "code_centers_", "labels_", "n_iter_")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        encoder: tuple[int, ...] = dec.ENCODER_SIZES,
        layer_steps: int = 500,
        fine_steps: int = 2_000,
        refresh: int = 140,
        tolerance: float = 0.001,
        max_steps: int = 20_000,
        device: str = "cpu",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.encoder = encoder
        self.layer_steps = layer_steps
        self.fine_steps = fine_steps
        self.refresh = refresh
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state

    def protocol(self, fed: Federation) -> Protocol[Any]:
        require(
            list(fed.site_data) == [SINGLE_SITE],
            "DEC clusters the rows of one site only; give it an array, or use FedCRef",
        )
        require(self.n_clusters >= 1, f"n_clusters is {self.n_clusters}; it must be at least 1")
        how = dec.DecSchedule(
            self.layer_steps, self.fine_steps, refresh=self.refresh, tolerance=self.tolerance, steps=self.max_steps
        )
        rows = np.concatenate([block.T for block in fed.site_data[SINGLE_SITE].source.blocks()])
        return _protocol_without_questions(
            dec.fit(rows, self.n_clusters, seed=self.seed_, schedule=how, encoder=self.encoder, device=self.device)
        )

    def store_result(self, fed: Federation, result: dec.Embedding) -> None:  # noqa: ARG002
        self.layers_, self.scale_, self.code_centers_ = list(result.layers), result.scale, result.centers
        self.labels_ = result.labels.astype(np.int32)
        self.n_iter_ = result.steps
        self.notes_ = (
            []
            if result.settled
            else [f"Stopped after {count_noun(result.steps, 'step')}, before the clusters stopped changing."]
        )

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Return the cluster of each row."""
        return np.asarray(self.memberships(X).argmax(axis=1), np.int32)

    def memberships(self, X: Any) -> Floats:
        """Return the membership of each row in each cluster, rows by clusters."""
        check_is_fitted(self)
        rows = self._validate_rows(X)
        found = dec.Embedding(
            tuple(self.layers_), self.scale_, self.code_centers_, np.zeros(0, np.int64), self.n_iter_, settled=True
        )
        return found.memberships(rows)


def _protocol_without_questions(result: Any) -> Protocol[Any]:
    """A protocol that asks nobody."""
    return result
    yield  # a generator, like every protocol
