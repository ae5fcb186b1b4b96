"""k-means that opens a cluster's sum only if that cannot show few rows, and otherwise leaves the centre where it is.

A cluster may be opened if its rows and those of every cell opened before in the run differ by no row or by at least
`floor` rows, counted over all sites; and so do its rows and no rows at all. The same holds for two cells of one
partition together, because the sums of three cells could show few rows as well. Otherwise the cluster's centre stays,
its changes add up, and its sum stays closed. The fit ends when no cluster may be opened or the centres have settled.
The decision depends on counts over all sites only, so the result is the same wherever the rows lie.

Each iteration first asks which clusters may be opened (`privacy.floor_test`). From three sites on, one site finds that
out from messages that the coordinator cannot read, and signs the answer. Every site checks the signature, and that no
cell it has opened is missing from the question, before it adds up the rows of the clusters that may be opened. With one
or two sites the coordinator finds it out. In neither case does anyone see a count.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.cmeans.cell_comparisons import count_comparisons, count_differences
from fedclust.algorithms.cmeans.cmeans_contracts import fits_floor_question, fits_opening, fits_roles
from fedclust.algorithms.cmeans.exact_rounds import pull_is_plausible
from fedclust.algorithms.cmeans.opened_cells import (
    MAX_PARTITIONS,
    OpenedPartition,
    Partition,
    check_partitions,
    nearest_partition,
    select_blocks,
)
from fedclust.core import wire
from fedclust.core.effects import (
    Keep,
    SealedMessages,
    handler,
)
from fedclust.core.errors import KeysRefused, WireError
from fedclust.core.question_types import GapsQuestion, ViewedQuestion
from fedclust.core.release import ROW_BITS, Done, Release, additive, sealed_shares, shares, stack_field
from fedclust.core.ring import Exact
from fedclust.core.site_interface import Site, View
from fedclust.core.types import Array, Bools, Floats, Ints, PartyId
from fedclust.kernels import hard_sweep
from fedclust.kernels.exact_sums import Sums
from fedclust.privacy import floor_test, keys

MIN_TESTED_SITES = 3  # from here on a site tests the counts, and the coordinator learns one bit for each cluster
MAX_TESTS = 1 << 24  # of one question
ROLES, SECRET, OPENED, OWN_SECRET = "floor.roles", "floor.secret", "floor.opened.", "floor.own"


@dataclass(frozen=True)
class Roles(GapsQuestion):
    """The site that tests the counts (or nobody: then the coordinator does), and the sites that hide them from it."""

    tester: str
    hiders: tuple[str, ...]

    def rows_with_gaps(self) -> str:
        return "partial"  # no value is read, so none may be missing

    @classmethod
    def assign(cls, parties: Sequence[PartyId]) -> Roles:
        """Return the roles of some sites."""
        ordered = tuple(sorted(parties))
        return cls("", ordered) if len(ordered) < MIN_TESTED_SITES else cls(ordered[0], ordered[1:])


@dataclass(frozen=True)
class FloorQuestion(ViewedQuestion):
    """Which cells of a partition may be opened, after the cells that were opened before?"""

    view: View
    partition: Partition
    earlier: tuple[OpenedPartition, ...]
    floor: int
    roles: Roles

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(wire.encode(self)).digest()

    @property
    def residues(self) -> floor_test.Residues:
        """The numbers that hide the counts of all sites."""
        return floor_test.Residues.for_counts(self.floor, len(self.roles.hiders) + bool(self.roles.tester))

    @property
    def shape(self) -> tuple[int, int]:
        """How many cells there are, and with how many each is compared."""
        return self.partition.cells, count_comparisons(self.partition, self.earlier)

    @property
    def is_small(self) -> bool:
        """Whether sites answer this many comparisons."""
        cells, comparisons = self.shape
        return cells * comparisons * self.floor <= MAX_TESTS and len(self.earlier) < MAX_PARTITIONS


@dataclass(frozen=True)
class FloorMessages(Release):
    messages: dict[str, bytes] = sealed_shares(
        "for another site: numbers of rows that changed their cluster, hidden so that they show only whether there "
        "are fewer than the floor"
    )


@handler(releases=FloorMessages, split="rows", contract=fits_roles)
def make_secret(site: Site, ask: Roles) -> Keep[FloorMessages]:
    """Make the secret that hides counts from the tester, for all sites but the tester."""
    _check_roles(site, ask)
    if site.party != ask.hiders[0]:
        raise KeysRefused("another site makes the secret that hides counts")
    secret = secrets.token_bytes(floor_test.SECRET_BYTES)
    return Keep(FloorMessages(dict.fromkeys(ask.hiders[1:], secret)), _memory_with_secret(site, ask, secret))


@handler(releases=Done, split="rows", note=Roles, contract=fits_roles)
def receive_secret(site: Site, incoming: SealedMessages) -> Keep[Done]:
    """Store the secret that hides counts."""
    roles = wire.decode(Roles, incoming.note)
    _check_roles(site, roles)
    secret = incoming.messages.get(roles.hiders[0], b"")
    if site.party not in roles.hiders[1:] or len(secret) != floor_test.SECRET_BYTES:
        raise KeysRefused("the secret that hides counts does not come from the site that makes it")
    return Keep(Done(), _memory_with_secret(site, roles, secret))


@handler(releases=FloorMessages, split="rows", contract=fits_floor_question)
def share_counts(site: Site, ask: FloorQuestion) -> FloorMessages:
    """The tester's counts, as two shares for two of the other sites."""
    _check_question(site, ask)
    if site.party != ask.roles.tester:
        raise KeysRefused("this site does not test counts, so it does not share its own")
    counts, seed = _clipped_counts(site, ask), _own_secret(site, ask)
    rest = ask.residues.pack(ask.residues.split_counts(counts, seed))
    first, second = ask.roles.hiders[:2]
    return FloorMessages({first: seed, second: rest})


@handler(releases=FloorMessages, split="rows", note=FloorQuestion, contract=fits_floor_question)
def hide_counts(site: Site, incoming: SealedMessages) -> FloorMessages:
    """This site's part of the test, for the tester."""
    ask = wire.decode(FloorQuestion, incoming.note)
    _check_question(site, ask)
    place = _place_among_hiders(site, ask.roles)
    counts, shared = _clipped_counts(site, ask), incoming.messages.get(ask.roles.tester)
    if set(incoming.messages) != ({ask.roles.tester} if place < 2 else set()):
        raise KeysRefused("the tester's counts must come to two of the other sites, and from the tester")
    if shared is not None:
        residues = ask.residues
        own = residues.unpack(shared, ask.shape) if place else residues.expand_share(shared, ask.shape)
        counts = counts + own
    return FloorMessages({ask.roles.tester: ask.residues.pack(_hidden_counts(site, ask, counts, place))})


@dataclass(frozen=True)
class Verdict(Release):
    """Which cells may be opened, and the tester's signature."""

    allowed: Array = shares("one bit for each cluster: whether at least the floor of rows, or none, has changed")
    signature: bytes = shares("this site's signature of these bits")


@handler(releases=Verdict, split="rows", note=FloorQuestion, contract=fits_floor_question)
def find_allowed(site: Site, incoming: SealedMessages) -> Verdict:
    """Which cells may be opened, from the hidden counts of all other sites."""
    ask = wire.decode(FloorQuestion, incoming.note)
    _check_question(site, ask)
    if site.party != ask.roles.tester or set(incoming.messages) != set(ask.roles.hiders):
        raise KeysRefused("the hidden counts must come from every other site, and to the site that tests them")
    cells, comparisons = ask.shape
    shape = (cells, comparisons * (ask.floor - 1))
    hidden = [ask.residues.unpack(text, shape) for text in incoming.messages.values()]
    allowed = ask.residues.count_forbidden(hidden) == 0
    return Verdict(allowed, site.vault.sign(_signed_text(site, ask, allowed)))


@dataclass(frozen=True)
class HiddenCounts(Release):
    residues: Array = shares(
        "numbers of rows that changed their cluster, hidden so that the numbers of all sites together show only how "
        "many are between one and the floor"
    )


@handler(releases=HiddenCounts, split="rows", contract=fits_floor_question)
def hide_counts_from_coordinator(site: Site, ask: FloorQuestion) -> HiddenCounts:
    """This site's part of the test, where at most two sites take part and the coordinator tests."""
    _check_question(site, ask)
    if ask.roles.tester:
        raise KeysRefused("in this run a site tests the counts, not the coordinator")
    place = _place_among_hiders(site, ask.roles)
    return HiddenCounts(ask.residues.shrink(_hidden_counts(site, ask, _clipped_counts(site, ask), place)))


@dataclass(frozen=True)
class OpeningQuestion(ViewedQuestion):
    """The sums of the cells that may be opened, around the centres of their partition."""

    view: View
    centers: Floats
    m: float
    asked: FloorQuestion
    allowed: Array
    signature: bytes
    wanted: Array  # those of the cells that are needed

    @classmethod
    def from_verdict(
        cls, asked: FloorQuestion, centers: Floats, allowed: Bools, signature: bytes, wanted: Bools | None = None
    ) -> OpeningQuestion:
        """Return the question that follows a verdict, for all cells or those that are wanted."""
        all_cells = np.ones(asked.partition.cells, bool)
        return cls(asked.view, centers, 1.0, asked, allowed, signature, all_cells if wanted is None else wanted)

    @property
    def is_sound(self) -> bool:
        """Whether each cell has a centre: the cells of these centres were tested, or groups of other cells."""
        partition = self.asked.partition
        if partition.has_groups:
            fits = partition.cells == len(self.centers) + 1 and not self.wanted[-1]
        else:
            fits = partition.digest == nearest_partition(self.view, self.centers).digest
        return bool(self.m == 1 and fits and self.view.missing == self.asked.view.missing)


@dataclass(frozen=True)
class OpenedMoments(Release):
    mass: Exact = additive("the number of rows of each cluster that may be opened", cells=True)
    pull: Exact = additive("the sum of the rows of each cluster that may be opened")
    scatter: Exact = additive(
        "for each cluster that may be opened, the sum of the squared distances of its rows to the centre", least=0.0
    )

    @classmethod
    def plausible(cls, parts: Sequence[OpenedMoments], ask: OpeningQuestion) -> Bools:
        """Also: a cluster's sum is at most its rows times a column's bound, and its scatter 2^reach for each row."""
        mass = stack_field(parts, "mass").to_floats()[..., None]
        most = 2.0 ** (row_split.make_question(ask.view, ask.centers, 1.0).reach + ROW_BITS)
        near = (stack_field(parts, "scatter").to_floats() <= most).all(axis=1)
        return np.asarray(super().plausible(parts, ask) & pull_is_plausible(parts, ask.view, mass) & near)


@handler(releases=OpenedMoments, split="rows", contract=fits_opening)
def open_moments(site: Site, ask: OpeningQuestion) -> Keep[OpenedMoments]:
    """The sums of the cells that are wanted and may be opened; those of the others are left out."""
    _check_question(site, ask.asked)
    opened, partition = _checked_verdict(site, ask) & ask.wanted, ask.asked.partition
    if not ask.is_sound:
        raise WireError("sums are opened around the centres whose cells were tested, in the same view")
    mass, pull, reach = row_split.make_question(ask.view, ask.centers, 1.0).units
    sums = Sums.zeros(mass, pull, int(reach))
    scatter = np.zeros((len(ask.centers), 2), np.uint64)
    for cell in np.flatnonzero(opened):
        own = Sums.zeros(mass[[cell]], pull[[cell]], int(reach))
        for block in select_blocks(site, ask.view, partition, int(cell)):
            hard_sweep.accumulate(own, block, ask.centers[[cell]])
        sums.mass[cell], sums.pull[cell], scatter[cell] = own.mass[0], own.pull[0], own.objective
    found = OpenedMoments(Exact(sums.mass, mass), Exact(sums.pull, pull), Exact(scatter, reach))
    opened = opened | site.memory.get(OPENED + partition.digest, np.zeros(partition.cells, bool))
    return Keep(found, {**site.memory, OPENED + partition.digest: opened})


def has_opened(site: Site, partition: Partition, cell: int) -> bool:
    """Whether this site has opened a cell in this run."""
    opened = site.memory.get(OPENED + partition.digest)
    return opened is not None and 0 <= cell < len(opened) and bool(opened[cell])


def _check_roles(site: Site, roles: Roles) -> None:
    """Refuse roles that leave a site out: they follow from the names of all sites that this one was enrolled with."""
    if roles != Roles.assign(site.vault.enrolled_parties):
        raise KeysRefused("the roles of the sites in the test of counts are not those of this run")


def _check_question(site: Site, ask: FloorQuestion) -> None:
    _check_roles(site, ask.roles)
    check_partitions((*ask.earlier, OpenedPartition(ask.partition, np.zeros(ask.partition.cells, bool))), ask.view)
    if not (1 <= ask.floor <= floor_test.MAX_TESTED_FLOOR and ask.is_small):
        raise WireError("the question compares more cells than a site allows")


def _memory_with_secret(site: Site, roles: Roles, secret: bytes) -> dict[str, Array]:
    return {**site.memory, ROLES: _array_from_bytes(wire.encode(roles)), SECRET: _array_from_bytes(secret)}


def _place_among_hiders(site: Site, roles: Roles) -> int:
    if site.party not in roles.hiders:
        raise KeysRefused("this site tests counts, so it must not hide them")
    return roles.hiders.index(site.party)


def _clipped_counts(site: Site, ask: FloorQuestion) -> Ints:
    return floor_test.clip_counts(count_differences(site, ask.partition, ask.earlier), ask.floor)


def _hidden_counts(site: Site, ask: FloorQuestion, counts: Ints, place: int) -> Ints:
    """The site's part of the test, under the secret of all sites that hide counts."""
    if len(ask.roles.hiders) == 1:  # nobody else hides anything
        secret = _own_secret(site, ask)
    elif SECRET in site.memory and site.memory[ROLES].tobytes() == wire.encode(ask.roles):
        secret = site.memory[SECRET].tobytes()
    else:
        raise KeysRefused("this site has not received the secret that hides counts")
    context = keys.digest_parts(site.vault.run, ask.digest)
    shared = floor_test.SharedSecret(secret, context, len(ask.roles.hiders), ask.residues)
    return floor_test.hide_counts(counts, ask.floor, shared, place)


def _own_secret(site: Site, ask: FloorQuestion) -> bytes:
    """A secret of this site for one question; the same question gets the same, so that its answer does not change."""
    own = site.vault.get(OWN_SECRET)
    if own is None:
        own = secrets.token_bytes(floor_test.SECRET_BYTES)
        site.vault.put({OWN_SECRET: own})
    return keys.derive_key(own, ask.digest)


def _signed_text(site: Site, ask: FloorQuestion, allowed: Bools) -> bytes:
    return keys.frame_parts("floored opening", site.vault.run, ask.digest, np.asarray(allowed, bool).tobytes())


def _checked_verdict(site: Site, ask: OpeningQuestion) -> Bools:
    """Which cells may be opened, after a check that the tester says so and compared with all cells opened here."""
    asked, allowed = ask.asked, np.asarray(ask.allowed)
    wanted = np.asarray(ask.wanted)
    if any(one.dtype != np.bool_ or one.shape != (asked.partition.cells,) for one in (allowed, wanted)):
        raise WireError("the question does not say for each cell whether it may be opened")
    tester = asked.roles.tester
    if tester and not site.vault.has_signed(tester, ask.signature, _signed_text(site, asked, allowed)):
        raise KeysRefused("the site that tests counts has not allowed these cells to be opened")
    listed = {OPENED + one.partition.digest: one.opened for one in asked.earlier}
    for name, opened in site.memory.items():
        if not name.startswith(OPENED) or name == OPENED + asked.partition.digest:
            continue
        if name not in listed or (opened & ~listed[name]).any():
            raise KeysRefused("cells that this site has opened before are missing from the question")
    return allowed


def _array_from_bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)
