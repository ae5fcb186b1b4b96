"""The coordinator's side of floored opening: the cells opened in a run, and which clusters may be opened next."""

from __future__ import annotations

from dataclasses import dataclass

from fedclust.algorithms.cmeans.floored_opening import (
    MIN_TESTED_SITES,
    FloorQuestion,
    Roles,
    Verdict,
    find_allowed,
    hide_counts,
    hide_counts_from_coordinator,
    make_secret,
    receive_secret,
    share_counts,
)
from fedclust.algorithms.cmeans.opened_cells import OpenedPartition, Partition, record_opening
from fedclust.algorithms.shared.cell_tree import MAX_DECISIONS
from fedclust.core import wire
from fedclust.core.effects import Ask, Protocol, SealedMessages, collect_messages, each, forward_messages
from fedclust.core.errors import RunFailed
from fedclust.core.types import Bools, PartyId


@dataclass(frozen=True)
class StartFacts:
    """The groups of cells that the initial centres come from, one for each centre."""

    groups: Partition


@dataclass
class OpeningRecord:
    """What the coordinator of one run knows about opened cells, for all fits of the run."""

    earlier: tuple[OpenedPartition, ...] = ()
    start: StartFacts | None = None  # of the initial centres that the next fit begins with
    leaves: Partition | None = None  # the cells that a choice of K has opened
    has_secret: bool = False

    def add(self, partition: Partition, opened: Bools) -> None:
        """Add cells whose sums have been opened, by whatever question."""
        self.earlier = record_opening(self.earlier, partition, opened)


def agree_on_secret(roles: Roles, record: OpeningRecord) -> Protocol[None]:
    """Have the sites that hide counts agree on a secret, once in a run."""
    if record.has_secret or len(roles.hiders) < 2:
        return
    messages = yield from collect_messages(make_secret, roles, among=roles.hiders[:1])
    note = wire.encode(roles)
    received = {party: SealedMessages(messages[party], note) for party in roles.hiders[1:]}
    yield Ask(receive_secret, "each", messages=received, asked_once=True)
    record.has_secret = True


def decide_openings(ask: FloorQuestion) -> Protocol[tuple[Bools, bytes]]:
    """Which cells may be opened, and the signature that the sites check; empty where the coordinator found it out."""
    roles, note = ask.roles, wire.encode(ask)
    if not roles.tester:
        hidden = yield from each(hide_counts_from_coordinator, ask)
        return ask.residues.count_forbidden([own.residues for own in hidden.values()]) == 0, b""
    shared = yield from collect_messages(share_counts, ask, among=(roles.tester,))
    gathered = yield from forward_messages(hide_counts, {p: shared.get(p, {}) for p in roles.hiders}, note)
    verdicts: dict[PartyId, Verdict] = yield Ask(
        find_allowed, "each", messages={roles.tester: SealedMessages(gathered[roles.tester], note)}, asked_once=True
    )
    verdict = verdicts[roles.tester]
    if verdict.allowed.shape != (ask.partition.cells,):
        raise RunFailed("the site that tests counts sent another number of answers; use one version of fedclust")
    return verdict.allowed, verdict.signature


def count_questions(max_iter: int, fits: int, sites: int) -> dict[str, int]:
    """The maximum number of times a run asks each question in which the sites decide, as counted by a plan."""
    if sites < MIN_TESTED_SITES:
        return {} if sites == 1 else {make_secret.name: 1, receive_secret.name: 1}
    asked = (max_iter + MAX_DECISIONS) * fits
    return {
        make_secret.name: 1,
        receive_secret.name: 1,
        share_counts.name: asked,
        hide_counts.name: asked,
        find_allowed.name: asked,
    }
