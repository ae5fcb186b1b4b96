"""Describes a fitted model so that others can judge it, in plain numbers and words; nothing is about a single row.

Whatever needs the sites is asked through their gates. A part that is not available says why, and a part that fails does
not affect the others. The same run gives the same description, resumed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedclust.app import indices
from fedclust.app.analysis import epsilon_curve
from fedclust.app.analysis.hidden_counts import hide_derivable_counts
from fedclust.app.analysis.k_curve import describe_choice
from fedclust.app.analysis.model_facts import ModelFacts, read_model_facts
from fedclust.app.analysis.opened_clusters import NEVER_OPENED_REASON, centers_to_ask_about
from fedclust.app.analysis.part_guard import PartGuard, json_values
from fedclust.app.analysis.what_left import list_what_left
from fedclust.app.choose_k import Selection
from fedclust.core.effects import ALL_PARTIES, Protocol
from fedclust.core.envelope import REMEDIES
from fedclust.core.errors import QuorumLost, StudyError, Waiting
from fedclust.core.release import HIDDEN_COUNT
from fedclust.core.site_interface import View
from fedclust.core.types import Floats, Ints
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.federation.federation import SHORT_PROTOCOL_ASKS, Federation
from fedclust.models.assignment import CentersModel
from fedclust.models.base import Model
from fedclust.models.methods import method_of_model
from fedclust.questions import cluster_indices as index_sums
from fedclust.questions import composition, pca, standardisation

ANALYSIS_FORMAT, ANALYSIS_VERSION = "fedclust-analysis", 1
RULE_CODES = frozenset(  # codes with which a site refuses by its own rules
    {
        "handler-not-allowed",
        "too-few-rows",
        "not-a-sum",
        "too-few-parties",
        "aggregation-too-weak",
        "points-not-allowed",
        "weights-not-allowed",
        "too-many-calls",
        "too-many-numbers",
        "abstains",
        "another-cohort",
        "cohort-too-close",
        "not-approved",
        "over-budget",
        "not-private",
    }
)
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
) -> _RowSplitDescriber | _ColumnSplitDescriber | _ClosedSitesDescriber | _PrivateDescriber | _LaterRoundDescriber:
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
        if model.opens_floored and model.opened_centers_ is None:
            return _ClosedSitesDescriber(facts, {"absent": NEVER_OPENED_REASON})
        return _RowSplitDescriber(model, facts, fed, parts)
    except QuorumLost as lost:
        return _ClosedSitesDescriber(facts, _refusal_reason(lost))
    except Waiting:
        raise
    except Exception as error:  # noqa: BLE001 a finished run stays finished
        return _ClosedSitesDescriber(facts, parts.absent("statistics of the rows", error))


def _refusal_reason(lost: QuorumLost) -> dict[str, str]:
    """Return the reason if the sites' own rules refuse; a missing answer for any other reason ends the run."""
    if not set(lost.missing.values()) <= RULE_CODES:
        raise lost
    reasons = "; ".join(f"{party}: {REMEDIES.get(code, code)}" for party, code in sorted(lost.missing.items()))
    return {"absent": f"Sites did not answer ({reasons})."}


@dataclass
class _RowSplitDescriber:
    """Sites with whole rows."""

    model: CentersModel
    facts: ModelFacts
    fed: Federation
    parts: PartGuard

    def __post_init__(self) -> None:
        self.view, self.centers, self.columns = self._run_protocol(self._look_at_columns())
        self.asked = centers_to_ask_about(self.model, self.fed, self.centers, self.parts)
        try:
            asked = self._ask_sites(self._plane_and_spread)
        except (QuorumLost, Waiting):
            raise
        except Exception as error:  # noqa: BLE001 a finished run stays finished
            asked = self.parts.absent("map", error)
        self.absent: dict[str, str] | None = asked if isinstance(asked, dict) else None
        self.plane: pca.Plane | None = None if self.absent else asked[0]
        self.spread: pca.ClusterSpread | None = None if self.absent else asked[1]

    def _run_protocol(self, protocol: Protocol[Any]) -> Any:
        return self.fed.run(
            protocol, quorum=self.model.quorum, missing=self.facts.missing, asks_multiple=SHORT_PROTOCOL_ASKS
        )[0]

    def _ask_sites(self, script: Callable[[], Protocol[Any]]) -> Any:
        """Return the result of a script, or why the sites refused it."""
        try:
            return self._run_protocol(script())
        except QuorumLost as lost:
            return _refusal_reason(lost)
        except StudyError as unfit:
            return {"absent": f"{str(unfit)[:1].upper()}{str(unfit)[1:]}."}

    def _look_at_columns(self) -> Protocol[tuple[View, Floats, standardisation.ColumnStatistics]]:
        """Return the columns as the model sees them, with valid bounds, and their means and standard deviations."""
        view, centers = yield from indices.model_view(self.model, self.fed)
        return view, centers, (yield from standardisation.column_statistics(view))

    def _plane_and_spread(self) -> Protocol[tuple[pca.Plane, pca.ClusterSpread]]:
        everyone = self.model.quorum == ALL_PARTIES
        plane = yield from pca.plane(self.view, self.columns, everyone=everyone)
        return plane, (yield from pca.cluster_spread(self.view, self.asked, plane))

    def profiles(self) -> dict[str, Any]:
        spread = np.ones(len(self.columns.sd)) if self.view.spread is None else self.view.spread
        sd = np.where(self.columns.sd > 0, self.columns.sd, 1.0)
        return {
            "centers": self.view.to_original_units(self.centers),
            "standardised": (self.centers - self.columns.mean) / sd,
            "against": "all rows",
            "mean": self.view.to_original_units(self.columns.mean[None, :])[0],
            "sd": self.columns.sd * spread,
        }

    def map(self) -> dict[str, Any]:
        if self.plane is None or self.spread is None:
            return self.absent or {}
        names, used = self.fed.columns, self.plane.columns
        return {
            "columns": [names[at] for at in used],
            "left_out": len(names) - len(used),
            "axes": self.plane.axes,
            "shares": list(self.plane.variance_shares),
            "centers": self.spread.places,
            "means": self.spread.means,
            "covariances": self.spread.covariances,
        }

    def sizes(self) -> dict[str, Any]:
        return self.absent or {} if self.spread is None else _describe_sizes(self.facts, self.spread.counts)

    def indices(self) -> dict[str, Any]:
        whole = self.view.missing != "partial"  # with missing values there are no means by label
        names = [name for name in index_sums.BEST_DIRECTION if whole or name not in index_sums.CRISP_INDICES]
        if len(self.centers) < 2 and self.fed.aggregation.has_fixed_rounds:
            # Ask for an index even with one cluster; otherwise the coordinator would see that there is only one.
            with np.errstate(all="ignore"):
                self._ask_sites(
                    lambda: index_sums.compute_indices(self.view, np.repeat(self.asked, 2, axis=0), 2.0, names)
                )
        found = self._ask_sites(lambda: index_sums.compute_indices(self.view, self.asked, self.facts.fuzziness, names))
        return found if "absent" in found else _describe_indices(found)

    def composition(self) -> dict[str, Any]:
        if self.fed.aggregation.mode != "plain":
            return {"absent": "Only sums over all sites are revealed. The counts of each site stay at that site."}
        found = self._ask_sites(lambda: composition.compositions(self.view, self.asked))
        if "absent" in found:
            return dict(found)
        counts = {party: [None if n == HIDDEN_COUNT else n for n in own.tolist()] for party, own in found.items()}
        return {"sites": hide_derivable_counts(counts)}


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
        return _describe_sizes(self.facts, np.bincount(self.model.labels_, minlength=self.facts.cluster_count))

    def indices(self) -> dict[str, Any]:
        try:
            return _describe_indices(indices.scores(self.model, self.fed))
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


def _describe_sizes(facts: ModelFacts, counts: Ints) -> dict[str, Any]:
    return {"rows": counts.tolist(), "weights": facts.cluster_sizes if facts.is_soft else None}


def _describe_weights(facts: ModelFacts) -> dict[str, Any]:
    """Sizes where rows are not counted again."""
    if facts.cluster_sizes is None:
        return {"absent": "The method does not report the number of rows of each cluster."}
    return _describe_sizes(facts, np.rint(facts.cluster_sizes).astype(np.int64))


def _describe_indices(values: Mapping[str, float]) -> dict[str, Any]:
    return {name: {"value": value, "best": index_sums.BEST_DIRECTION[name]} for name, value in values.items()}


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
