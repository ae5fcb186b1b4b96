"""Describes a fitted model so that others can judge it, in plain numbers and words; nothing is about a single row.

Whatever needs the sites is asked through their gates. A part that is not available says why, and a part that fails does
not affect the others. The same run gives the same description, resumed or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedclust.app import indices
from fedclust.app.analysis import epsilon_curve
from fedclust.app.analysis.describe_rows import (
    NO_CELLS_REASON,
    OpenedCellsDescriber,
    RowSplitDescriber,
    describe_indices,
    describe_sizes,
    refusal_reason,
)
from fedclust.app.analysis.k_curve import describe_choice
from fedclust.app.analysis.model_facts import ModelFacts, read_model_facts
from fedclust.app.analysis.part_guard import PartGuard, json_values
from fedclust.app.analysis.what_left import list_what_left
from fedclust.app.choose_k import Selection
from fedclust.core.errors import QuorumLost, StudyError, Waiting
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import Federation
from fedclust.models.assignment import CentersModel
from fedclust.models.base import Model
from fedclust.models.methods import method_of_model

ANALYSIS_FORMAT, ANALYSIS_VERSION = "fedclust-analysis", 1
NO_CENTERS_REASON = "The method has no centres, so rows cannot be counted by their nearest centre."
UNREAD_LIMITS_REASON = "The model does not say whether its sites may be asked further questions."


def describe(
    model: Model, fed: Any, selection: Selection | None = None, facts: ModelFacts | None = None
) -> dict[str, Any]:
    """All that can be said of a fitted model and the federation it was fitted to, ready for JSON.

    Numbers that JSON does not have are the texts "inf", "-inf" and "nan". A part that is not available is
    `{"absent": why}`; where that is a failure, a note says so, too. `facts` are the model's, if they were read before.

    >>> import numpy as np, fedclust as fc
    >>> fed = fc.Federation.local({"a": np.array([[0.0], [1.0], [10.0]]), "b": np.array([[11.0]])}, columns=["age"])
    >>> found = describe(fc.KMeans(2, init=[[0.0], [10.0]]).fit(fed), fed)
    >>> found["sizes"]["rows"], found["composition"]["sites"]["a"], found["profiles"]["centers"]
    ([2, 2], [2, 1], [[0.5], [10.5]])
    """
    check_is_fitted(model)
    if not isinstance(fed, Federation):
        fed = federation_of_rows(fed, model.columns_)
    facts, parts = facts or read_model_facts(model), PartGuard()
    seen = _choose_describer(model, facts, fed, parts)
    found: dict[str, dict[str, Any] | None] = {
        "profiles": parts.guard("profiles", seen.profiles),
        "map": parts.guard("map", seen.map),
        "sizes": parts.guard("sizes", seen.sizes),
        "indices": (scores := parts.guard("indices", seen.indices)),
        "composition": parts.guard("composition", seen.composition),
        "fuzziness": parts.guard("fuzziness", lambda: _describe_fuzziness(facts, scores)),
        "selection": None if selection is None else parts.guard("choice of K", lambda: describe_choice(selection)),
        "convergence": parts.guard("convergence", lambda: _describe_convergence(facts)),
        "privacy": _guard_privacy(model, facts, fed, parts),
        "left": parts.guard(
            "list of the answers sent", lambda: list_what_left(fed)
        ),  # last, because the questions above also make answers leave
    }
    notes = [*(() if selection is None else selection.notes), *facts.notes, *facts.failures, *parts.notes]
    return {
        "format": ANALYSIS_FORMAT,
        "version": ANALYSIS_VERSION,
        **json_values(_describe_origin(model, facts, fed)),
        **found,
        "notes": notes,
    }


def _describe_origin(model: Model, facts: ModelFacts, fed: Federation) -> dict[str, Any]:
    """Where the model comes from: its method, its settings, its columns and its sites."""
    units = {name: c for raw, c in fed.schema.items() for name in c.encoded_column_names(raw)}
    method = method_of_model(model)
    return {
        "method": method.name if method else type(model).__name__,
        "title": method.title if method else type(model).__name__,
        "k": facts.cluster_count,
        "m": facts.fuzziness if facts.fuzziness > 1 else None,
        "scale": facts.scale,
        "split": fed.split,
        "missing": facts.missing,
        "seed": facts.seed,
        "columns": [{"name": name, "type": units[name].type, "unit": units[name].unit} for name in fed.columns],
        "parties": list(fed.parties),
        "aggregation": fed.aggregation.mode,
        "lossless": facts.is_lossless and not any(note.startswith("Not lossless") for note in facts.notes),
    }


def _choose_describer(
    model: Model, facts: ModelFacts, fed: Federation, parts: PartGuard
) -> RowSplitDescriber | _ColumnSplitDescriber | _ClosedSitesDescriber | _PrivateDescriber | _LaterRoundDescriber:
    """As much of the rows as can be seen through the sites' gates; of a private model's, no more than was paid for."""
    if facts.has_unread_limits:
        return _ClosedSitesDescriber(facts, {"absent": UNREAD_LIMITS_REASON})
    if facts.privacy_part is not None:
        return _PrivateDescriber(facts)
    if facts.is_later_round:
        return _LaterRoundDescriber(facts)
    if not isinstance(model, CentersModel):
        return _ClosedSitesDescriber(facts, {"absent": NO_CENTERS_REASON})
    if fed.split == "columns":
        return _ColumnSplitDescriber(model, facts, fed)
    try:
        if model.opens_floored and not any(model.opened_cells_ or ()):
            return _ClosedSitesDescriber(facts, {"absent": NO_CELLS_REASON})
        return (OpenedCellsDescriber if model.opens_floored else RowSplitDescriber)(model, facts, fed, parts)
    except QuorumLost as lost:
        return _ClosedSitesDescriber(facts, refusal_reason(lost))
    except Waiting:
        raise
    except Exception as error:  # noqa: BLE001 a finished run stays finished
        return _ClosedSitesDescriber(facts, parts.absent("statistics of the rows", error))


@dataclass
class _ColumnSplitDescriber:
    """Sites with different columns of the same rows: each keeps its own columns, so less can be described."""

    model: CentersModel
    facts: ModelFacts
    fed: Federation

    def profiles(self) -> dict[str, Any]:
        origin = self.model.origin_
        if origin is not None and self.facts.scale == "standardise":
            seen = {"standardised": self.model.scaled_centers_, "against": "all rows"}
            return {"centers": self.facts.cluster_centers, **seen, "mean": origin, "sd": self.model.spread_}
        return _profiles_of_centers(self.facts)

    def map(self) -> dict[str, Any]:
        return {"absent": "Each site keeps its own columns, so no map over all columns can be drawn."}

    def sizes(self) -> dict[str, Any]:
        if self.model.labels_ is None:
            return {"absent": "Labels stay at the sites."}
        return describe_sizes(self.facts, np.bincount(self.model.labels_, minlength=self.facts.cluster_count))

    def indices(self) -> dict[str, Any]:
        try:
            return describe_indices(indices.scores(self.model, self.fed))
        except StudyError as unfit:
            return {"absent": f"{str(unfit)[:1].upper()}{str(unfit)[1:]}."}

    def composition(self) -> dict[str, Any]:
        return {"absent": "All sites have the same rows, with different columns, so there are no counts by site."}


@dataclass
class _ClosedSitesDescriber:
    """Sites whose rules allow no questions after the fit."""

    facts: ModelFacts
    absent: dict[str, str]

    def profiles(self) -> dict[str, Any]:
        return _profiles_of_centers(self.facts)

    def sizes(self) -> dict[str, Any]:
        return self.absent

    map = indices = composition = sizes


@dataclass
class _PrivateDescriber:
    """Sites under differential privacy; any further question would cost more of their budget."""

    facts: ModelFacts

    def profiles(self) -> dict[str, Any]:
        return _profiles_of_centers(self.facts)

    def sizes(self) -> dict[str, Any]:
        return _describe_weights(self.facts)

    def indices(self) -> dict[str, Any]:
        return {"absent": "Under differential privacy, a run asks only the questions that its privacy budget covers."}

    map = composition = indices


@dataclass
class _LaterRoundDescriber:
    """Sites that reported each row once, in one round; sums over tables that grew would reveal the new rows."""

    facts: ModelFacts

    def profiles(self) -> dict[str, Any]:
        return _profiles_of_centers(self.facts)

    def sizes(self) -> dict[str, Any]:
        return _describe_weights(self.facts)

    def indices(self) -> dict[str, Any]:
        return {
            "absent": "After the first round, sites send only summaries. The difference between sums of two rounds "
            "would reveal the new rows."
        }

    map = composition = indices


def _profiles_of_centers(facts: ModelFacts) -> dict[str, Any]:
    """Profiles where nothing but the centres is known."""
    centers = facts.cluster_centers
    if centers is None:
        return {"absent": "The model has no centres."}
    middle, apart = centers.mean(axis=0), centers.std(axis=0)
    seen = (centers - middle) / np.where(apart > 0, apart, 1.0)
    return {"centers": centers, "standardised": seen, "against": "centres", "mean": None, "sd": None}


def _describe_weights(facts: ModelFacts) -> dict[str, Any]:
    """Sizes where rows are not counted again."""
    if facts.cluster_sizes is None:
        return {"absent": "The method does not report the number of rows of each cluster."}
    return describe_sizes(facts, np.rint(facts.cluster_sizes).astype(np.int64))


def _describe_fuzziness(facts: ModelFacts, found: Mapping[str, Any]) -> dict[str, Any]:
    if (mixture := facts.mixture_part) is not None:
        return {"coefficient": None, "entropy": mixture.entropy / mixture.rows}
    if not facts.fuzziness > 1:
        return {"absent": "This is a hard clustering method: every row belongs to exactly one cluster."}
    if "absent" in found:
        return {"absent": found["absent"]}
    return {
        "coefficient": found["partition-coefficient"]["value"],
        "entropy": found["partition-entropy"]["value"],
    }


def _guard_privacy(model: Model, facts: ModelFacts, fed: Federation, parts: PartGuard) -> dict[str, Any] | None:
    """What a private model guarantees; None if it is not private."""
    promise = facts.privacy_part
    if promise is None:
        return None
    return parts.guard("privacy", lambda: epsilon_curve.describe_privacy(model, promise, len(fed.parties)))


def _describe_convergence(facts: ModelFacts) -> dict[str, Any]:
    return {
        "rounds": facts.n_iter,
        "shifts": facts.shifts,
        "objectives": facts.objectives,
        "objective": facts.final_objective,
        # A mixture stops by its likelihood, not by how far the centres move.
        "tol": None if facts.mixture_part else facts.tol,
        "max_iter": facts.max_iter,
        "stopped": any(note.startswith("Stopped after") for note in facts.notes),
    }
