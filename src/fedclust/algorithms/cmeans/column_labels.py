"""Hard c-means over columns at several parties that reveals only each row's label.

As in `column_split`, each party measures squared distances to its own slices of the centres. But no party sees their
sums: three parties, the seats, hold shares of the sums and compute on them, bit by bit, which centre is nearest
(`privacy.secret_argmin`). The coordinator forwards their sealed messages and combines three shares of the labels. The
labels equal those of `column_split`, bit for bit; each party moves its slices with them. A seat learns nothing from its
shares unless two of the three combine theirs, which reveals all distances. A seat that does not follow the protocol can
corrupt labels and learn from the effect. Sites compare only rows that all were asked about, with centres that are means
of classes or were given, never with centres on single rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedclust.algorithms.cmeans import column_split
from fedclust.algorithms.cmeans.cmeans_contracts import (
    compares_labels,
    fits_comparison,
    fits_label_assignment,
    fits_seed,
)
from fedclust.algorithms.cmeans.column_split import ColumnFit, EmptyQuestion, JointTable, RowSpan, reveal, row_chunks
from fedclust.algorithms.cmeans.fit_result import FitNotes, FitResult, Round
from fedclust.core import wire
from fedclust.core.effects import (
    Ask,
    Keep,
    Protocol,
    SealedMessages,
    collect_messages,
    each,
    forward_messages,
    handler,
    report,
)
from fedclust.core.errors import KeysRefused, RunFailed, WireError
from fedclust.core.question_types import DISTANCE_UNIT, AgreedValuesQuestion, ClassesQuestion
from fedclust.core.release import Done, Release, sealed_shares, shares
from fedclust.core.site_interface import Site
from fedclust.core.types import Array, Ints, Limbs, PartyId
from fedclust.privacy import masks, secret_argmin
from fedclust.privacy.secret_argmin import Seat, SplitNumbers

TOKEN_BYTES = 16  # bytes
SEAT_MEMORY_NAMES = ("seat.seats", "seat.before", "seat.after", "seat.used")


@dataclass(frozen=True)
class Seats:
    """The three who compute, in order."""

    parties: tuple[str, ...]

    def neighbor(self, party: PartyId, step: int = 0) -> PartyId:
        """The seat some steps after a party's."""
        return self.parties[(self.parties.index(party) + step) % len(self.parties)]


@dataclass(frozen=True)
class RowComparison(AgreedValuesQuestion):
    """Rows to label, and who computes."""

    seats: Seats
    span: RowSpan

    @property
    def token(self) -> bytes:
        """A token that every share carries, so that parties only compare distances of the same rows."""
        return hashlib.sha256(wire.encode(self)).digest()[:TOKEN_BYTES]

    def agreed_values(self) -> Mapping[str, int]:
        return {DISTANCE_UNIT: self.span.unit}


@dataclass(frozen=True)
class SeatMessages(Release):
    messages: dict[str, bytes] = sealed_shares(
        "for one of the three sites that compare distances: secret shares of distances (a single share looks like "
        "a random number)"
    )


@handler(releases=SeatMessages, split="columns", contract=compares_labels)
def take_seat(site: Site, ask: Seats) -> Keep[SeatMessages]:
    """Take a seat, and give the seat before a seed that both will draw masks from.

    A seat that is taken again starts from a new seed, so no mask of the earlier seed is drawn twice.
    """
    if site.party not in _check_seats(site, ask).parties:
        raise KeysRefused(
            "this site was asked to compare distances on secret shares, but other sites were chosen for this"
        )
    seed = secret_argmin.new_seed()
    others = {name: own for name, own in site.memory.items() if not name.startswith(("seat.", "bits."))}
    taken = {"seat.seats": _array_from_bytes(wire.encode(ask)), "seat.before": _array_from_bytes(seed)}
    return Keep(SeatMessages({ask.neighbor(site.party, -1): seed}), {**others, **taken})


@dataclass(frozen=True)
class SeedMessages(SealedMessages):
    """The seed of a neighbouring seat."""


@handler(releases=Done, split="columns", contract=fits_seed)
def receive_seed(site: Site, incoming: SeedMessages) -> Keep[Done]:
    """Take the seed that the seat after gave; once, for masks are counted from here."""
    if "seat.before" not in site.memory or "seat.after" in site.memory:
        raise KeysRefused(
            "this site does not take part in the comparison of distances, or it already has the seed from its neighbour"
        )
    seed = _message_from(incoming, _remembered_seats(site).neighbor(site.party, 1))
    if len(seed) != secret_argmin.SEED_BYTES:
        raise KeysRefused("the seed from the neighbouring site has the wrong length")
    return Keep(Done(), {**site.memory, "seat.after": _array_from_bytes(seed), "seat.used": np.zeros(1, np.int64)})


@handler(releases=SeatMessages, split="columns", contract=fits_comparison)
def split_distances(site: Site, ask: RowComparison) -> SeatMessages:
    """The distances of a site that has no seat, split between two of the seats."""
    if site.party in _check_seats(site, ask.seats).parties:
        raise KeysRefused(
            "this site compares distances itself, so it does not send its distances to the comparing sites"
        )
    split = SplitNumbers.from_sums(_distances(site, ask.span))
    first, second, _ = ask.seats.parties
    return SeatMessages({first: ask.token + split.seed, second: ask.token + split.rest.tobytes()})


@handler(releases=SeatMessages, split="columns", note=RowComparison, contract=fits_comparison)
def enter_comparison(site: Site, incoming: SealedMessages) -> Keep[SeatMessages]:
    """This seat's share of the sums of distances, before any comparison; it sends shares of it to the next seat."""
    ask = wire.decode(RowComparison, incoming.note)
    seat, sums = _own_seat(site, ask.seats), _distances(site, ask.span)
    others = set(site.vault.enrolled_parties) - set(ask.seats.parties) if seat.place < 2 else set()
    if set(incoming.messages) != others:
        raise KeysRefused(
            "shares of distances must come from every site that does not compare distances itself, and from no other "
            "site"
        )
    for message in incoming.messages.values():
        text = _strip_token(message, ask.token)
        part = _limbs_from_bytes(text, sums.shape) if seat.place else SplitNumbers.expand_seed(text, sums.shape)
        sums = masks.add_limbs(sums, part)
    state, sent = secret_argmin.start_comparison(seat, sums)
    outgoing = {ask.seats.neighbor(site.party, 1): ask.token + sent.tobytes()}
    return Keep(SeatMessages(outgoing), _memory_with_state(site, seat, {**state, "ask": _array_from_bytes(ask.token)}))


@handler(releases=SeatMessages, split="columns", note=Seats, contract=compares_labels)
def continue_comparison(site: Site, incoming: SealedMessages) -> Keep[SeatMessages]:
    """One exchange of the comparison."""
    seats = wire.decode(Seats, incoming.note)
    seat, before = _own_seat(site, seats), _state(site)
    if "own" in before:  # numbers were only entered yet: those come from the seat before, all else from the one after
        received = _strip_token(_message_from(incoming, seats.neighbor(site.party, -1)), before["ask"].tobytes())
    else:
        received = _message_from(incoming, seats.neighbor(site.party, 1))
    state, sent = secret_argmin.advance_comparison(seat, before, np.frombuffer(received, np.uint64))
    return Keep(SeatMessages({seats.neighbor(site.party, -1): sent.tobytes()}), _memory_with_state(site, seat, state))


@dataclass(frozen=True)
class LabelShares(Release):
    words: Limbs = shares(
        "a secret share of each row's label; all three shares together give the label, but two shares reveal nothing"
    )


@handler(releases=LabelShares, split="columns", note=Seats, contract=compares_labels)
def finish_comparison(site: Site, incoming: SealedMessages) -> Keep[LabelShares]:
    """This seat's share of the labels."""
    seats = wire.decode(Seats, incoming.note)
    seat = _own_seat(site, seats)
    received = np.frombuffer(_message_from(incoming, seats.neighbor(site.party, 1)), np.uint64)
    words = secret_argmin.open_winners(seat, _state(site), received)
    return Keep(LabelShares(words), _memory_with_state(site, seat, {}))


@dataclass(frozen=True)
class LabelAssignment(ClassesQuestion):
    """Each row's label; a label beyond the clusters leaves a row out."""

    labels: Array
    clusters: int

    def smallest_class(self) -> int:
        """The fewest rows of a cluster that has any: a centre moved to the mean of one row is that row."""
        return int(np.unique(self.labels, return_counts=True)[1].min(initial=self.labels.size))


@handler(releases=Done, split="columns", contract=fits_label_assignment)
def move_to_label_means(site: Site, ask: LabelAssignment) -> Keep[Done]:
    """Move this party's slices of the centres to the means of the labelled rows; one without rows stays."""
    _refuse_centers_on_rows(site)
    if ask.labels.shape != (site.rows,):
        raise WireError("the question does not give each row one label")
    # Half of one for each row of a cluster, as `vertical` weighs them: the largest weight is below one.
    weights = np.where(ask.labels == np.arange(ask.clusters)[:, None], 0.5, 0.0)
    stays = np.full(ask.clusters, -1, np.int64)
    moved = column_split.apply_weights.answer(site, column_split.RowWeights(0, weights, True, True, stays)).memory  # type: ignore[union-attr]
    seat = {name: site.memory[name] for name in SEAT_MEMORY_NAMES if name in site.memory}
    return Keep(Done(), {name: own for name, own in {**moved, **seat}.items() if name != column_split.SINGLE_ROW_MARK})


def fit(
    table: JointTable,
    parties: tuple[PartyId, ...],
    *,
    n_clusters: int,
    stop_when_stable: bool,
    max_iter: int,
    seed: int,
    reveal_slices: bool = False,
) -> Protocol[ColumnFit]:
    """Alternate labels and means until no row changes its cluster (if it may `stop_when_stable`), or `max_iter` is
    reached.

    Centres are in place. A cluster without rows restarts from the mean of a random half of the
    largest cluster's rows.
    """
    rng, notes, history = np.random.default_rng(seed), FitNotes(), list[Round]()
    start_slices = (yield from each(reveal, EmptyQuestion())) if reveal_slices else None
    seats = yield from assign_seats(parties, n_clusters)
    before: Ints | None = None
    labels = yield from label_rows(table, seats, parties, n_clusters)
    for number in range(1, max_iter + 1):
        changed = table.rows if before is None else int((labels != before).sum())
        history.append(Round(number, float(changed), math.nan))
        yield from report(round=number, shift=float(changed))
        if stop_when_stable and not changed:
            break
        classes = _refill_empty_clusters(labels, n_clusters, rng, notes, number)
        yield from each(move_to_label_means, LabelAssignment(classes.astype(_label_dtype(n_clusters)), n_clusters))
        before, labels = labels, (yield from label_rows(table, seats, parties, n_clusters))
    sizes = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    notes.note_empty_clusters(int((sizes <= 0).sum()))
    nowhere = np.empty((n_clusters, 0))
    fitted = FitResult(nowhere, nowhere, math.nan, sizes, tuple(history), tuple(notes.sentences()))
    end_slices = (yield from each(reveal, EmptyQuestion())) if reveal_slices else None
    return ColumnFit(fitted, nowhere, labels.astype(np.int32), start_slices, end_slices)


def assign_seats(parties: tuple[PartyId, ...], n_clusters: int) -> Protocol[Seats]:
    """The first three parties take their seats; for one cluster there is nothing to compare."""
    seats = Seats(tuple(parties[: secret_argmin.SEATS]))
    if n_clusters > 1:
        seeds = yield from collect_messages(take_seat, seats, among=seats.parties)
        yield _ask_once(receive_seed, {party: SeedMessages(own, b"") for party, own in seeds.items()})
    return seats


def label_rows(table: JointTable, seats: Seats, parties: tuple[PartyId, ...], n_clusters: int) -> Protocol[Ints]:
    """The nearest centre of each row, the first of equals, chunk by chunk."""
    if n_clusters == 1:
        return np.zeros(table.rows, np.int64)
    found = []
    for start, stop in row_chunks(table.rows, n_clusters * (n_clusters - 1) // 2):
        ask = RowComparison(seats, RowSpan(start, stop, table.unit))
        others = tuple(party for party in parties if party not in seats.parties)
        shares = (yield from collect_messages(split_distances, ask, among=others)) if others else {}
        received = yield from forward_messages(
            enter_comparison, {party: shares.get(party, {}) for party in seats.parties}, wire.encode(ask)
        )
        note = wire.encode(seats)
        for _ in range(secret_argmin.rounds(n_clusters)):
            received = yield from forward_messages(continue_comparison, received, note)
        parts = yield _ask_once(
            finish_comparison, {party: SealedMessages(own, note) for party, own in received.items()}
        )
        labels = secret_argmin.winning_labels([part.words for part in parts.values()], stop - start)
        if labels is None:
            raise RunFailed(
                "the sites' shares of the labels do not match, so one site made a different computation; use the "
                "same version of fedclust at all sites"
            )
        found.append(labels)
    return np.concatenate(found)


def count_questions(max_iter: int, n_clusters: int) -> dict[str, int]:
    """The maximum number of times a run asks each question about one chunk of rows, as counted by a plan."""
    labelled = max_iter + 1
    return {
        take_seat.name: 1,
        receive_seed.name: 1,
        split_distances.name: labelled,
        enter_comparison.name: labelled,
        continue_comparison.name: labelled * secret_argmin.rounds(n_clusters),
        finish_comparison.name: labelled,
        move_to_label_means.name: max_iter,
    }


def _ask_once(who: object, messages: dict[PartyId, SealedMessages]) -> Ask:
    return Ask(who, "each", messages=messages, asked_once=True)  # type: ignore[arg-type]


def _refill_empty_clusters(
    labels: Ints, n_clusters: int, rng: np.random.Generator, notes: FitNotes, number: int
) -> Ints:
    """Labels in which each cluster without rows has half of the largest one's: so no centre is put on a row."""
    classes = labels.copy()
    for cluster in np.flatnonzero(np.bincount(labels, minlength=n_clusters) == 0):
        rows = np.flatnonzero(classes == np.bincount(classes).argmax())
        if len(rows) < 2:
            break
        classes[rng.permutation(rows)[: len(rows) // 2]] = cluster
        notes.note_reseeded(number, 1)
    return classes


def _label_dtype(n_clusters: int) -> type[np.generic]:
    return np.uint8 if n_clusters <= 256 else np.int32


def _distances(site: Site, span: RowSpan) -> Limbs:
    """This party's share of the squared distances, to centres from which labels may be opened."""
    _refuse_centers_on_rows(site)
    return column_split.measure_distances.answer(site, span).d2.limbs  # type: ignore[union-attr]


def _refuse_centers_on_rows(site: Site) -> None:
    if column_split.SINGLE_ROW_MARK in site.memory:
        raise KeysRefused("a centre may be a copy of a row, so labels would reveal distances to that row")


def _check_seats(site: Site, seats: Seats) -> Seats:
    if len(seats.parties) != secret_argmin.SEATS or len(set(seats.parties)) != secret_argmin.SEATS:
        raise KeysRefused("exactly three different sites must compare the distances")
    if not set(seats.parties) <= set(site.vault.enrolled_parties):
        raise KeysRefused("the sites that compare distances include one that this site was not enrolled with")
    return seats


def _remembered_seats(site: Site) -> Seats:
    """As they were when this site sat down."""
    return wire.decode(Seats, site.memory["seat.seats"].tobytes())


def _own_seat(site: Site, seats: Seats) -> Seat:
    if "seat.after" not in site.memory or seats != _remembered_seats(site):
        raise KeysRefused(
            "this site was not chosen to compare distances, or the sites named in this question differ from those "
            "chosen earlier in the run"
        )
    place, used = seats.parties.index(site.party), int(site.memory["seat.used"][0])
    return Seat(place, site.memory["seat.before"].tobytes(), site.memory["seat.after"].tobytes(), used)


def _state(site: Site) -> dict[str, Array]:
    return {name.removeprefix("bits."): own for name, own in site.memory.items() if name.startswith("bits.")}


def _memory_with_state(site: Site, seat: Seat, state: dict[str, Array]) -> dict[str, Array]:
    kept = {name: own for name, own in site.memory.items() if not name.startswith("bits.")}
    return {**kept, "seat.used": np.array([seat.use_count]), **{f"bits.{name}": own for name, own in state.items()}}


def _message_from(incoming: SealedMessages, sender: PartyId) -> bytes:
    if set(incoming.messages) != {sender}:
        raise KeysRefused("a message of the distance comparison came from an unexpected site")
    return incoming.messages[sender]


def _strip_token(message: bytes, token: bytes) -> bytes:
    """The share in a sealed message, after a check that it is about the rows this site was asked about."""
    if message[:TOKEN_BYTES] != token:
        raise KeysRefused("the shares are not for the rows that this site was asked about")
    return message[TOKEN_BYTES:]


def _limbs_from_bytes(text: bytes, shape: tuple[int, ...]) -> Limbs:
    return np.frombuffer(text, np.uint64).reshape(shape)


def _array_from_bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)
