"""How many rows the sums that a run opened show, counted while the run goes on, for its own report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.app.audit.recovered_rows import OpenedSums
from fedclust.core.effects import Ask, Protocol, rewrite
from fedclust.federation.federation import Federation
from fedclust.privacy import attacks
from fedclust.privacy.attacks.cell_differences import MAX_COMPARED_CELLS

MAX_COMPARED_ROWS = 1_000_000  # of more rows, only the points of an attack are counted


@dataclass
class OpenedClusterSums:
    """The sums that the script of a run received, over at least two sites."""

    opened: OpenedSums = field(default_factory=OpenedSums)
    steps: int = 0

    def listen(self, protocol: Protocol[Any]) -> Protocol[Any]:
        """Run a protocol and keep the sums that it receives."""

        def lower(ask: Ask) -> Protocol[Any]:
            answer = yield ask
            if ask.want == "total" and len(answer[1]) > 1:
                self.steps += 1
                self.opened.add(self.steps, ask.handler, answer[1], ask.message, answer[0])
            return answer

        return rewrite(protocol, lower)

    def sentences(self, fed: Federation) -> list[str]:
        """Say how many rows the sums show, or how many points the attack takes for rows if the rows are elsewhere."""
        if self.opened.is_empty:
            return []
        local = fed.site_data.values()
        if not local or sum(own.survey_for("partial").rows for own in local) > MAX_COMPARED_ROWS:
            claimed = len(attacks.attack_by_differencing(self.opened.seen))
            return [
                f"In the sums of two rounds an attack found {claimed} points that may be rows; sites can check them."
            ]
        blocks = [np.asarray(block, np.float64).T for own in local for block in own.source.blocks()]
        rows = np.concatenate(blocks)
        rows = rows[~np.isnan(rows).any(axis=1)]
        many, shown = self.opened.count(rows), int(self.opened.recovered_rows(rows).sum())
        tried = "all sums" if many <= MAX_COMPARED_CELLS else f"{MAX_COMPARED_CELLS} of them"
        return [
            f"This run opened {many} sums of groups of rows. From these, the attacks in fedclust recover {shown} of "
            f"{len(rows)} rows. They compare two or three sums at a time, and tried {tried}."
            + (" They also solve the sums as equations." if self.opened.has_weights else "")
        ]


def listen_to_sums(fed: Federation) -> OpenedClusterSums:
    """Keep the sums that a federation opens from now on."""
    opened, aggregator = OpenedClusterSums(), fed._aggregator  # noqa: SLF001 only here scripts are seen before masks
    pad_plainly = aggregator.pad

    def pad(protocol: Protocol[Any], multiple: int) -> Protocol[Any]:
        return pad_plainly(opened.listen(protocol), multiple)

    aggregator.pad = pad  # type: ignore[method-assign]
    return opened
