"""How many rows the sums that a run opened show, counted while the run goes on, for its own report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.core.effects import Ask, Protocol, rewrite
from fedclust.federation.federation import Federation
from fedclust.privacy import attacks
from fedclust.privacy.attacks.cell_differences import MAX_COMPARED_CELLS, opened_cells, rows_by_differences
from fedclust.privacy.attacks.transcript import Observation, observe
from fedclust.questions.choice_of_k.choice_questions import GroupMoments
from fedclust.questions.choice_of_k.rows_by_cells import rows_shown_by_choice

MAX_COMPARED_ROWS = 1_000_000  # of more rows, only the points of an attack are counted


@dataclass
class OpenedClusterSums:
    """The counts and sums of clusters that the script of a run received, over at least two sites."""

    seen: list[Observation] = field(default_factory=list)
    groups: list[tuple[Any, GroupMoments]] = field(default_factory=list)  # of a choice of K

    def listen(self, protocol: Protocol[Any]) -> Protocol[Any]:
        """Run a protocol and keep the sums of clusters that it receives."""

        def lower(ask: Ask) -> Protocol[Any]:
            answer = yield ask
            if ask.want == "total" and isinstance(answer[0], GroupMoments) and len(answer[1]) > 1:
                self.groups.append((ask.message, answer[0]))
            if ask.want == "total" and len(answer[1]) > 1:
                seen = observe(len(self.seen) + 1, ask.handler, answer[1], ask.message, answer[0])
                if seen.cells:
                    self.seen.append(seen)
            return answer

        return rewrite(protocol, lower)

    def sentences(self, fed: Federation) -> list[str]:
        """Say how many rows the sums show, or how many points the attack takes for rows if the rows are elsewhere."""
        counts, sums = opened_cells(self.seen)
        if not len(counts) and not self.groups:
            return []
        local = fed.site_data.values()
        if not local or sum(own.survey_for("partial").rows for own in local) > MAX_COMPARED_ROWS:
            claimed = len(attacks.attack_by_differencing(self.seen))
            return [
                f"In the sums of two rounds an attack found {claimed} points that may be rows; sites can check them."
            ]
        blocks = [np.asarray(block, np.float64).T for own in local for block in own.source.blocks()]
        rows = np.concatenate(blocks)
        rows = rows[~np.isnan(rows).any(axis=1)]
        by_choice = rows_shown_by_choice(self.groups, rows)
        shown = int((rows_by_differences(counts, sums, rows) | by_choice).sum())
        many = len(counts) + sum(len(answer.rows.to_floats()) for _, answer in self.groups)
        tried = f"the {many} sums" if many <= MAX_COMPARED_CELLS else f"the first {MAX_COMPARED_CELLS} sums"
        sentence = (
            f"{shown} of {len(rows)} rows are exactly the difference of two or three of {tried} of clusters that this "
            "run opened."
        )
        return [sentence]


def listen_to_sums(fed: Federation) -> OpenedClusterSums:
    """Keep the sums of clusters that a federation opens from now on."""
    opened, aggregator = OpenedClusterSums(), fed._aggregator  # noqa: SLF001 only here scripts are seen before masks
    pad_plainly = aggregator.pad

    def pad(protocol: Protocol[Any], multiple: int) -> Protocol[Any]:
        return pad_plainly(opened.listen(protocol), multiple)

    aggregator.pad = pad  # type: ignore[method-assign]
    return opened
