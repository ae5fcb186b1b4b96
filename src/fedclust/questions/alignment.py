"""Which rows all sites of a column split hold, found without showing an id: private set intersection in a ring.

Each site hashes its ids to points of a curve and multiplies them by a secret factor. The lists go once round the ring
of sites; each site multiplies the lists of others by its own two factors, and its own list, when it is back, by its
second. Now equal ids have equal tags, and each site knows its own. The coordinator, which has no factor and no id, gets
the tags and returns those that all sites have. The sites put these rows in the order of their ids.

Who learns what: a site, which of its own rows all others hold, and about how many ids each other site brought. The
coordinator, about how many ids each site brought, and how many of them any two or more sites share; of no id which. A
coordinator and a site together learn which of that site's ids each other site holds. A site passes on one list for each
other site and no more, or they could try out ids one list after the other. Only the number of common rows is written
to the journal. Keys are fresh in each run.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclust.core import wire
from fedclust.core.effects import (
    Ask,
    Keep,
    Opening,
    Protocol,
    SealedMessages,
    collect_messages,
    each,
    forward_messages,
    handler,
)
from fedclust.core.errors import DataError, KeysRefused, StudyError
from fedclust.core.question_types import CommonRowsQuestion, GapsQuestion, IdListQuestion
from fedclust.core.release import MAX_ROWS, Done, Release, facts, sealed_shares, shares
from fedclust.core.site_interface import RowOrder, Site
from fedclust.core.types import Array, Ints, PartyId
from fedclust.privacy import psi
from fedclust.privacy.psi import PsiKeys
from fedclust.questions.question_contracts import (
    fits_common_count,
    fits_common_tags,
    fits_list,
    fits_lone_ring,
    fits_ring,
)

ALIGNMENT_METHODS = ("psi",)
DUPLICATE_RULES = ("refuse", "first")
MAX_IDS = 1 << 24  # ids of one site


@dataclass(frozen=True)
class Alignment:
    """How the sites of a column split find the rows they have in common."""

    method: str = "psi"
    duplicates: str = "refuse"

    def check_split(self, split: str, id: str | None, aggregation: str) -> None:  # noqa: A002 the study's word
        """Refuse what cannot be carried out."""
        if self.method not in ALIGNMENT_METHODS:
            raise StudyError(
                f"the parameter 'align' is '{self.method}'; the only valid value is '{ALIGNMENT_METHODS[0]}'"
            )
        if self.duplicates not in DUPLICATE_RULES:
            raise StudyError(f"the parameter 'duplicates' is '{self.duplicates}'; choose 'refuse' or 'first'")
        if split != "columns" or id is None:
            raise StudyError(
                "the parameter 'align' needs a column split and an id column; set split to 'columns', and set id to "
                "the name of the id column"
            )
        if aggregation == "blind":
            raise StudyError(
                "in a blind run, the site that leads the run would learn which of its ids each other site holds; set "
                "aggregation to 'secure'"
            )


class _AllRowsQuestion(GapsQuestion):
    """A question of an alignment: rows that no other site has may lack values."""

    def rows_with_gaps(self) -> str:
        return "partial"


@dataclass(frozen=True)
class SiteRing(_AllRowsQuestion):
    """The sites in the order in which lists go round, and what to do with an id that a site has twice."""

    parties: tuple[str, ...]
    duplicates: str = "refuse"

    def neighbor(self, party: PartyId, step: int = 1) -> PartyId:
        """To whom a party hands a list; -1: from whom it gets one."""
        return self.parties[(self.parties.index(party) + step) % len(self.parties)]


@dataclass(frozen=True)
class ReturnedList(SealedMessages, _AllRowsQuestion):
    """A site's own list, which has passed all others; the note holds the ring."""


@dataclass(frozen=True)
class PassedList(ReturnedList, IdListQuestion):
    """A list of another site."""

    def longest_list(self) -> int:
        return max((len(text) // psi.POINT_BYTES for text in self.messages.values()), default=0)


@dataclass(frozen=True)
class PointList(Release):
    messages: dict[str, bytes] = sealed_shares(
        "to the next site: shuffled ids, hashed to points on an elliptic curve and multiplied by secret factors"
    )


@handler(releases=PointList, before_alignment=True, starts_alignment=True, contract=fits_ring)
def send_own_list(site: Site, ask: SiteRing) -> Keep[PointList]:
    """This site's ids, hashed, under its first factor, among fillers, in an order of their own."""
    if ask.duplicates not in DUPLICATE_RULES:
        raise DataError(
            f"{site.party} was asked to handle repeated ids by a rule that this version does not know; update fedclust"
        )
    _check_ring(site, ask)
    names = normalize_ids(_ids(site))
    rows = distinct_rows(names, site.party, first=ask.duplicates == "first")
    if len(rows) > MAX_IDS:
        raise DataError(f"site '{site.party}' holds more than {MAX_IDS} ids; align fewer rows at a time")
    keys, count = PsiKeys.new(), psi.padded_length(len(rows))
    places: Ints = np.concatenate([rows, np.full(count - len(rows), -1)])[psi.draw_order(count)]
    others = iter(psi.fillers(count - len(rows)))
    listed = [b"id" + names[row].encode() if row >= 0 else next(others) for row in places.tolist()]
    points = psi.hash_ids(listed, keys.outward)
    memory = {"align.keys": keys.to_array(), "align.rows": places, "align.ring": _array_from_bytes(wire.encode(ask))}
    return Keep(
        PointList({ask.neighbor(site.party): points.tobytes()}), {**memory, "align.passed": np.zeros(1, np.int64)}
    )


@handler(releases=PointList, before_alignment=True, contract=fits_list)
def pass_list(site: Site, received: PassedList) -> Keep[PointList]:
    """Another site's list under this site's factors, in its order, for the next site."""
    ring = _running_ring(site, received)
    passed = site.memory["align.passed"] + 1
    if passed[0] >= len(ring.parties):
        raise KeysRefused("this site was sent more lists of ids than there are other sites")
    points = psi.multiply_points(_read_points(received), _keys(site).combined_factor)
    return Keep(PointList({ring.neighbor(site.party): points.tobytes()}), {**site.memory, "align.passed": passed})


@dataclass(frozen=True)
class Tags(Release):
    tags: Array = shares("shuffled tags of ids and of padding entries, encrypted with the secret factors of all sites")


@handler(releases=Tags, before_alignment=True, contract=fits_list)
def return_tags(site: Site, received: ReturnedList) -> Keep[Tags]:
    """This site's own list, under the factors of all others, now under its second as well."""
    _running_ring(site, received)
    points = psi.multiply_points(_read_points(received), _keys(site).inward)
    if len(points) != len(site.memory["align.rows"]):
        raise KeysRefused("the site's own list of ids came back with a different length")
    found = psi.tags(points)
    return Keep(Tags(found), {"align.rows": site.memory["align.rows"], "align.tags": found})


@dataclass(frozen=True)
class CommonCount(_AllRowsQuestion, CommonRowsQuestion):
    """How many rows all sites have in common; a site whose policy wants more stops here."""

    common: int

    def rows_in_common(self) -> int:
        return self.common


@handler(releases=Done, before_alignment=True, contract=fits_common_count)
def accept_count(site: Site, ask: CommonCount) -> Done:  # noqa: ARG001 the gate has compared it with the policy
    """Nothing stands against so many common rows."""
    return Done()


@dataclass(frozen=True)
class CommonTags(_AllRowsQuestion):
    """The tags that all sites have, in ascending order."""

    tags: Array


@dataclass(frozen=True)
class Aligned(Release):
    rows: int = facts("how many rows all sites have in common", most=MAX_ROWS)


@handler(releases=Aligned, before_alignment=True, contract=fits_common_tags)
def keep_common_rows(site: Site, ask: CommonTags) -> Keep[Aligned]:
    """Read the common rows, in the order of their ids, from now on."""
    own = {tag.tobytes(): row for tag, row in zip(site.memory["align.tags"], site.memory["align.rows"], strict=True)}
    wanted = [tag.tobytes() for tag in ask.tags]
    rows = np.array([own.get(tag, -1) for tag in wanted], np.int64)
    if (rows < 0).any() or wanted != sorted(set(wanted)):
        raise KeysRefused("the list of common ids contains an id that this site did not send, or it is not sorted")
    return _keep_order(site, rows, hashlib.sha256(b"".join(wanted)).digest())


@handler(releases=Aligned, before_alignment=True, contract=fits_lone_ring)
def keep_all_rows(site: Site, ask: SiteRing) -> Keep[Aligned]:
    """The only site: every id is common."""
    return _keep_order(
        site, distinct_rows(normalize_ids(_ids(site)), site.party, first=ask.duplicates == "first"), b"alone"
    )


def align_rows(parties: Sequence[PartyId], duplicates: str = "refuse") -> Protocol[int]:
    """Have all sites read the rows they have in common, in one order; returns how many there are."""
    ring = SiteRing(tuple(parties), duplicates)

    def steps(step: int) -> Protocol[tuple[Aligned, tuple[PartyId, ...]]]:  # noqa: ARG001 keys are fresh each time
        if len(parties) == 1:
            answers = yield from each(keep_all_rows, ring)
            return answers[parties[0]], ring.parties
        lists = yield from collect_messages(send_own_list, ring)
        note = wire.encode(ring)
        for _ in parties[1:]:
            lists = yield from forward_messages(pass_list, lists, note)
        back = {party: ReturnedList(own, note) for party, own in lists.items()}
        tags = {
            party: answer.tags
            for party, answer in (yield Ask(return_tags, "each", messages=back, asked_once=True)).items()
        }
        common = common_tags(list(tags.values()))
        yield from each(accept_count, CommonCount(len(common)))
        yield from each(keep_common_rows, CommonTags(common))
        return Aligned(len(common)), ring.parties

    found: tuple[Aligned, tuple[PartyId, ...]] = yield Opening(steps, Aligned)
    if not found[0].rows:
        raise DataError("the sites have no row in common; check that all sites write the ids in the same way")
    return found[0].rows


def common_tags(lists: Sequence[Array]) -> Array:
    """The tags that are in every list, in ascending order.

    >>> common_tags([np.array([[3, 3], [1, 2]], np.uint8), np.array([[1, 2], [0, 9]], np.uint8)]).tolist()
    [[1, 2]]
    """
    width = lists[0].shape[1]
    found = set.intersection(*({tag.tobytes() for tag in one} for one in lists))
    return np.frombuffer(b"".join(sorted(found)), np.uint8).reshape(-1, width)


def normalize_ids(ids: Array) -> list[str]:
    """Ids as they are compared: integers as plain decimals, texts in Unicode's form C without spaces around them.

    >>> normalize_ids(np.array([7, -1])), normalize_ids(np.array([" Ann ", "007"]))
    (['7', '-1'], ['Ann', '007'])
    """
    if ids.dtype.kind == "i":
        return [str(one) for one in ids.tolist()]
    return [unicodedata.normalize("NFC", one).strip() for one in ids.tolist()]


def distinct_rows(names: Sequence[str], party: PartyId, *, first: bool) -> Ints:
    """The place of each id, or of the first row that has it; refused where ids repeat and they may not.

    >>> distinct_rows(["b", "a", "b"], "north", first=True).tolist()
    [0, 1]
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    if "" in places:
        raise DataError(f"site '{party}' has ids that are empty or contain only spaces; give each row its own id")
    if len(places) < len(names) and not first:
        raise DataError(
            f"site '{party}' repeats an earlier id in {len(names) - len(places)} of its {len(names)} rows; give each "
            "row its own id, or set duplicates to 'first'"
        )
    return np.fromiter(places.values(), np.int64, len(places))


def id_order(names: Sequence[str]) -> Ints:
    """The order of ids that all sites have: integers by value where all are written so, else by code points.

    >>> id_order(["10", "9"]).tolist(), id_order(["10", "9", "x"]).tolist()
    ([1, 0], [0, 1, 2])
    """
    integers = all(_is_plain_integer(name) for name in names)
    keys: list[tuple[int, str]] = [(int(name) if integers else 0, name) for name in names]
    return np.array(sorted(range(len(names)), key=keys.__getitem__), np.int64)


def _is_plain_integer(name: str) -> bool:
    return name.removeprefix("-").isascii() and name.removeprefix("-").isdigit() and str(int(name)) == name


def _keep_order(site: Site, rows: Ints, key: bytes) -> Keep[Aligned]:
    names = normalize_ids(_ids(site))
    return Keep(Aligned(len(rows)), {}, RowOrder(rows[id_order([names[row] for row in rows.tolist()])], key))


def _ids(site: Site) -> Array:
    ids = site.ids()
    if ids is None:
        raise DataError(
            f"site '{site.party}' has no id column, but align matches rows by ids; set id to the name of a column"
        )
    return ids


def _check_ring(site: Site, ring: SiteRing) -> SiteRing:
    """A ring of everyone this site was enrolled with: in a smaller one, fewer sites would have to be fooled."""
    if sorted(ring.parties) != sorted(site.vault.enrolled_parties):
        raise KeysRefused("the sites in the alignment are not the sites that this site was enrolled with")
    return ring


def _running_ring(site: Site, received: ReturnedList) -> SiteRing:
    """The ring in which this site's list set out: a list of the same one, from the site before."""
    if "align.ring" not in site.memory:
        raise KeysRefused("the list of ids belongs to an alignment in which this site has not sent its own list")
    ring = wire.decode(SiteRing, site.memory["align.ring"].tobytes())
    if ring != wire.decode(SiteRing, received.note) or set(received.messages) != {ring.neighbor(site.party, -1)}:
        raise KeysRefused("the list of ids belongs to a different alignment, or does not come from the previous site")
    return ring


def _keys(site: Site) -> PsiKeys:
    return PsiKeys.from_array(site.memory["align.keys"])


def _array_from_bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _read_points(received: ReturnedList) -> Array:
    (text,) = received.messages.values()
    if len(text) % psi.POINT_BYTES or len(text) > psi.padded_length(MAX_IDS) * psi.POINT_BYTES:
        raise KeysRefused("the list of ids is too long, or ends in the middle of an entry")
    return np.frombuffer(text, np.uint8).reshape(-1, psi.POINT_BYTES)
