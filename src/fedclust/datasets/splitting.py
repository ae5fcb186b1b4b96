"""Split one data set among sites, by rows in the ways of the papers, or by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import StudyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Rows: TypeAlias = npt.NDArray[np.intp]
How: TypeAlias = Literal["iid", "dirichlet", "classes"]
Stream: TypeAlias = np.random.Generator | np.random.RandomState
MAX_SPLIT_DRAWS = 1_000


def split(
    X: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    parties: int = 5,
    how: How = "iid",
    *,
    seed: int = 0,
    alpha: float = 0.5,
    minimum: int = 1,
    setting: Literal["fcac"] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Split rows among sites named site-01, site-02, ...; return {site: rows}.

    `how` is one of

    - "iid": shuffle the rows and split them evenly.
    - "dirichlet": split each class of `y` in proportions drawn from Dirichlet(alpha); repeat this until each site
      has `minimum` rows.
    - "classes": give each site whole classes, or equal shards of them if there are more sites than classes.

    `setting="fcac"` reproduces the split of trial number `seed` in the published runs of paper 3, with "iid" or
    "dirichlet". It uses alpha = 0.5 and a minimum of 40 rows.

    >>> {party: len(rows) for party, rows in split(np.zeros((8, 2)), parties=3).items()}
    {'site-01': 3, 'site-02': 3, 'site-03': 2}
    """
    X = np.asarray(X)
    where = split_indices(X, y, parties, how, seed=seed, alpha=alpha, minimum=minimum, setting=setting)
    return {party: X[rows] for party, rows in where.items()}


def split_indices(
    X: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    parties: int = 5,
    how: How = "iid",
    *,
    seed: int = 0,
    alpha: float = 0.5,
    minimum: int = 1,
    setting: Literal["fcac"] | None = None,
) -> dict[str, Rows]:
    """Return the row numbers that `split` gives to each site, for example to split labels in the same way."""
    count = len(np.asarray(X))
    if parties < 1 or count < parties * max(1, minimum):
        raise StudyError(
            f"cannot split {count_noun(count, 'row')} among {count_noun(parties, 'site')} with at least "
            f"{count_noun(minimum, 'row')} each; choose another "
            "number of sites"
        )
    if not alpha > 0:
        raise StudyError(f"alpha is {alpha}; it must be a number above 0")
    if setting == "fcac":
        return _name_parties(_published_split(_check_classes(count, y, setting), parties, how, seed))
    rng = np.random.default_rng(seed)
    if how == "iid":
        return _name_parties(np.array_split(rng.permutation(count), parties))
    members = _members(_check_classes(count, y, how))
    if how == "dirichlet":
        return _name_parties(
            _draw_until_enough(lambda: _deal(members, rng, parties=parties, alpha=alpha, full=np.inf), minimum)
        )
    if how == "classes":
        return _name_parties(_draw_until_enough(lambda: _shards(members, rng, parties=parties), minimum))
    raise StudyError(f"the parameter 'how' is '{how}'; choose 'iid', 'dirichlet' or 'classes'")


def split_columns(
    X: npt.ArrayLike, into: int | Sequence[int], *, seed: int | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Split columns among sites, evenly or by the given numbers of columns; a seed shuffles them first.

    >>> {party: part.shape for party, part in split_columns(np.zeros((9, 16)), [1, 2, 3, 4, 6]).items()}
    {'site-01': (9, 1), 'site-02': (9, 2), 'site-03': (9, 3), 'site-04': (9, 4), 'site-05': (9, 6)}
    """
    X = np.asarray(X)
    width = X.shape[1]
    columns = np.arange(width) if seed is None else np.random.default_rng(seed).permutation(width)
    if isinstance(into, int):
        if not 1 <= into <= width:
            raise StudyError(
                f"{count_noun(width, 'column')} cannot be split among {count_noun(into, 'site')}; use 1 "
                f"to {count_noun(width, 'site')}"
            )
        return {party: X[:, mine] for party, mine in _name_parties(np.array_split(columns, into)).items()}
    if sum(into) != width or min(into) < 1:
        raise StudyError(f"the sizes of a column split must be positive and add up to {width}, not {sum(into)}")
    return {party: X[:, mine] for party, mine in _name_parties(np.split(columns, np.cumsum(into)[:-1])).items()}


def _name_parties(parts: Sequence[Rows]) -> dict[str, Rows]:
    digits = max(2, len(str(len(parts))))
    return {f"site-{number:0{digits}d}": part for number, part in enumerate(parts, start=1)}


def _check_classes(count: int, y: npt.ArrayLike | None, purpose: str) -> npt.NDArray[Any]:
    if y is None:
        raise StudyError(f"'{purpose}' splits rows by class; give the class of each row as y")
    y = np.asarray(y)
    if y.shape != (count,):
        raise StudyError(f"y has shape {y.shape}, but the number of rows is {count}; give one class per row")
    return y


def _members(y: npt.NDArray[Any]) -> list[Rows]:
    return [np.flatnonzero(y == label) for label in np.unique(y)]


def _deal(members: Sequence[Rows], stream: Stream, *, parties: int, alpha: float, full: float) -> list[Rows]:
    """Deal class after class, shuffled, in Dirichlet proportions; a party that holds `full` rows gets no more."""
    held: list[list[Rows]] = [[] for _ in range(parties)]
    for rows in map(stream.permutation, members):
        sizes = np.array([sum(map(len, mine)) for mine in held])
        share = stream.dirichlet(np.full(parties, alpha)) * (sizes < full)
        cuts = (np.cumsum(share / share.sum()) * len(rows)).astype(int)[:-1]
        for mine, part in zip(held, np.split(rows, cuts), strict=True):
            mine.append(part)
    return [np.concatenate(mine) for mine in held]


def _shards(members: Sequence[Rows], stream: Stream, *, parties: int) -> list[Rows]:
    each = -(-parties // len(members))
    shards = [
        shard
        for at in stream.permutation(len(members))
        for shard in np.array_split(stream.permutation(members[at]), each)
    ]
    return [np.concatenate(shards[number::parties]) for number in range(parties)]


def _draw_until_enough(draw: Callable[[], list[Rows]], minimum: int) -> list[Rows]:
    """Draw until each party holds the minimum."""
    for _ in range(MAX_SPLIT_DRAWS):
        parts = draw()
        if min(map(len, parts)) >= minimum:
            return parts
    raise StudyError(
        f"none of {MAX_SPLIT_DRAWS} random splits gave each site {count_noun(minimum, 'row')}; ask for "
        "fewer sites or a larger alpha"
    )


def _published_split(y: npt.NDArray[Any], parties: int, how: str, seed: int) -> list[Rows]:
    """Split as the runs behind paper 3's Tables 3 and 4 did; the rows of a party lie class by class.

    A trial shuffles all rows with its own seed. "iid" cuts each class into even runs and the last party takes the
    remainder; "dirichlet" draws from a stream seeded with 0 in every trial, and fills no party beyond its even part.
    """
    order = np.random.RandomState(seed).permutation(len(y))  # the generator of the published runs
    members = _members(y[order])
    if how == "iid":
        pieces = [np.split(rows, len(rows) // parties * np.arange(1, parties)) for rows in members]
        return [order[np.concatenate(mine)] for mine in zip(*pieces, strict=True)]
    if how == "dirichlet":
        stream = np.random.RandomState(0)
        full = len(y) / parties
        parts = _draw_until_enough(lambda: _deal(members, stream, parties=parties, alpha=0.5, full=full), minimum=40)
        return [order[rows] for rows in parts]
    raise StudyError(f"the parameter 'how' is '{how}'; with setting='fcac', choose 'iid' or 'dirichlet'")
