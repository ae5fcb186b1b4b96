"""Describes clusters by sums that sites with whole rows add up after the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.algorithms.cmeans.described_cells import (
    DescribedCells,
    counts_of_cells,
    indices_of_cells,
    spread_of_cells,
)
from fedclust.app import indices
from fedclust.app.analysis.hidden_counts import hide_derivable_counts
from fedclust.app.analysis.model_facts import ModelFacts
from fedclust.app.analysis.part_guard import PartGuard
from fedclust.core.effects import ALL_PARTIES, Protocol
from fedclust.core.envelope import REMEDIES
from fedclust.core.errors import QuorumLost, StudyError, Waiting
from fedclust.core.release import HIDDEN_COUNT
from fedclust.core.site_interface import View
from fedclust.core.types import Array, Bools, Floats, Ints, PartyId
from fedclust.federation.federation import SHORT_PROTOCOL_ASKS, Federation
from fedclust.models.assignment import CentersModel
from fedclust.questions import cluster_indices as index_sums
from fedclust.questions import composition, pca, standardisation

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
        "not-in-study",
    }
)
NO_CELLS_REASON = "The sums of no cluster were opened in this run, so further sums of clusters could show few rows."
CLOSED_CLUSTER_REASON = "The sums of some clusters were never opened, so no index over all clusters can be computed."
EARLIER_CELLS_NOTE = (
    "Sizes, indices and the map describe each cluster by the rows that it had when its sums were opened last. A few "
    "rows may have changed their cluster since, so the sizes need not add up to the number of rows. Sums of the final "
    "clusters are not opened, because they could show these rows."
)


def refusal_reason(lost: QuorumLost) -> dict[str, str]:
    """Return the reason if the sites' own rules refuse; a missing answer for any other reason ends the run."""
    if not set(lost.missing.values()) <= RULE_CODES:
        raise lost
    reasons = "; ".join(f"{party}: {REMEDIES.get(code, code)}" for party, code in sorted(lost.missing.items()))
    return {"absent": f"Sites did not answer ({reasons})."}


@dataclass
class RowSplitDescriber:
    """Sites with whole rows."""

    model: CentersModel
    facts: ModelFacts
    fed: Federation
    parts: PartGuard

    def __post_init__(self) -> None:
        self.view, self.centers, self.columns = self._run_protocol(self._look_at_columns())
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
            return refusal_reason(lost)
        except StudyError as unfit:
            return {"absent": f"{str(unfit)[:1].upper()}{str(unfit)[1:]}."}

    def _look_at_columns(self) -> Protocol[tuple[View, Floats, standardisation.ColumnStatistics]]:
        """Return the columns as the model sees them, with valid bounds, and their means and standard deviations."""
        view, centers = yield from indices.model_view(self.model, self.fed)
        return view, centers, (yield from standardisation.column_statistics(view))

    def _plane_and_spread(self) -> Protocol[tuple[pca.Plane, pca.ClusterSpread]]:
        everyone = self.model.quorum == ALL_PARTIES
        plane = yield from pca.plane(self.view, self.columns, everyone=everyone, floor=self.fed.cell_floor)
        return plane, (yield from pca.cluster_spread(self.view, self.centers, plane))

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
        return self.absent or {} if self.spread is None else describe_sizes(self.facts, self.spread.counts)

    def indices(self) -> dict[str, Any]:
        whole = self.view.missing != "partial"  # with missing values there are no means by label
        names = [name for name in index_sums.BEST_DIRECTION if whole or name not in index_sums.CRISP_INDICES]
        if len(self.centers) < 2 and self.fed.aggregation.has_fixed_rounds:
            # Ask for an index even with one cluster; otherwise the coordinator would see that there is only one.
            with np.errstate(all="ignore"):
                self._ask_sites(
                    lambda: index_sums.compute_indices(self.view, np.repeat(self.centers, 2, axis=0), 2.0, names)
                )
        found = self._ask_sites(
            lambda: index_sums.compute_indices(self.view, self.centers, self.facts.fuzziness, names)
        )
        return found if "absent" in found else describe_indices(found)

    def composition(self) -> dict[str, Any]:
        if self.fed.aggregation.mode != "plain":
            return {"absent": "Only sums over all sites are revealed. The counts of each site stay at that site."}
        found = self._ask_sites(self._count_by_site)
        return dict(found) if "absent" in found else {"sites": _shown_counts(found)}

    def _count_by_site(self) -> Protocol[Mapping[PartyId, Sequence[int | None]]]:
        """Each site's rows in each cluster."""
        found = yield from composition.compositions(self.view, self.centers)
        return {party: own.tolist() for party, own in found.items()}


@dataclass
class OpenedCellsDescriber(RowSplitDescriber):
    """Sites with whole rows, after a fit that opened only some sums: each cluster by the cell that was opened last."""

    def __post_init__(self) -> None:
        cells = self.model.opened_cells_ or ()
        self.is_open: Bools = np.array([cell is not None for cell in cells])
        self.cells = [cell for cell in cells if cell is not None]
        super().__post_init__()
        last = self.cells[0].partition
        together = len(self.cells) == len(cells) and all(cell.partition.digest == last.digest for cell in self.cells)
        self.is_settled = together and np.array_equal(last.arrays.get("centers", ()), self.centers)
        if not self.is_settled:
            self.parts.notes.append(EARLIER_CELLS_NOTE)

    @property
    def described(self) -> DescribedCells:
        """The cells that questions are about."""
        return DescribedCells.from_cells(self.view, self.centers[self.is_open], self.cells)

    def _plane_and_spread(self) -> Protocol[tuple[pca.Plane, pca.ClusterSpread]]:
        plane = yield from pca.plane(self.view, self.columns, floor=self.fed.cell_floor)
        return plane, (yield from spread_of_cells(self.described, plane))

    def map(self) -> dict[str, Any]:
        found = super().map()
        if self.plane is None or self.spread is None:
            return found
        places, _ = pca.place_centers(self.centers, self.plane)
        spread = {name: self._fill(found[name]) for name in ("means", "covariances")}
        return {**found, "centers": places, **spread}

    def sizes(self) -> dict[str, Any]:
        if self.absent or self.spread is None:
            return self.absent or {}
        total = int(self.columns.counts.max())
        return {"rows": self._fill(self.spread.counts), "weights": None, "total": total, "earlier": not self.is_settled}

    def indices(self) -> dict[str, Any]:
        if not self.is_open.all() or self.spread is None:
            return self.absent or {"absent": CLOSED_CLUSTER_REASON}
        sizes = self.spread.counts.astype(np.float64)
        if len(sizes) < 2 or not sizes.all():
            return {"absent": "An index needs at least two clusters, and rows in each of them."}
        found = self._ask_sites(lambda: indices_of_cells(self.described, sizes))
        return found if "absent" in found else describe_indices(found)

    def _count_by_site(self) -> Protocol[Mapping[PartyId, Sequence[int | None]]]:
        found = yield from counts_of_cells(self.described)
        return {party: self._fill(own) for party, own in found.items()}

    def _fill(self, values: Array) -> list[Any]:
        """Values of the cells as a list for all clusters, with None for clusters without a cell."""
        listed = iter(values.tolist())
        return [next(listed) if is_open else None for is_open in self.is_open]


def _shown_counts(found: Mapping[PartyId, Sequence[int | None]]) -> dict[PartyId, list[int | None]]:
    return hide_derivable_counts(
        {party: [None if n == HIDDEN_COUNT else n for n in own] for party, own in found.items()}
    )


def describe_sizes(facts: ModelFacts, counts: Ints) -> dict[str, Any]:
    return {"rows": counts.tolist(), "weights": facts.cluster_sizes if facts.is_soft else None}


def describe_indices(values: Mapping[str, float]) -> dict[str, Any]:
    return {name: {"value": value, "best": index_sums.BEST_DIRECTION[name]} for name, value in values.items()}
