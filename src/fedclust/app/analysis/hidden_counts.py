"""Keeps small counts hidden: a single hidden count in a row or column could be computed from the known total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedclust.core.types import PartyId

Cells = list[int | None]


def hide_derivable_counts(found: Mapping[PartyId, Sequence[int | None]]) -> dict[PartyId, Cells]:
    """Return each site's counts by cluster, with None for hidden ones; hide more until none follows from a total.

    Each site hides its small counts so that its own total does not reveal them. A cluster's total over all sites is
    known too. If only one site hides its count of a cluster, another site's count is hidden too, if possible a small
    one.

    >>> hide_derivable_counts({"a": [None, None, 30], "b": [9, 40, 20], "c": [50, 8, 10]})
    {'a': [None, None, 30], 'b': [None, None, 20], 'c': [50, 8, 10]}
    """
    table = {party: list(own) for party, own in found.items()}
    clusters = range(max((len(own) for own in table.values()), default=0))
    lines = [[(party, c) for party in table] for c in clusters] + [[(party, c) for c in clusters] for party in table]
    changed = True
    while changed:
        changed = False
        for line in lines:
            known = [place for place in line if table[place[0]][place[1]] is not None]
            shown = [
                place for place in known if table[place[0]][place[1]]
            ] or known  # zeros only if there is nothing else
            if shown and sum(table[party][c] is None for party, c in line) == 1:
                party, c = min(shown, key=lambda place: _hiding_cost(table, lines, place))
                table[party][c] = None
                changed = True
    return table


def _hiding_cost(
    table: Mapping[PartyId, Cells], lines: Sequence[Sequence[tuple[PartyId, int]]], place: tuple[PartyId, int]
) -> tuple[int, int]:
    """Return how many lines through a place would then have exactly one gap, and the count itself."""
    gaps = (sum(table[party][c] is None for party, c in line) for line in lines if place in line)
    return sum(not gap for gap in gaps), table[place[0]][place[1]] or 0
