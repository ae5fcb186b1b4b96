"""Attack d: the same sum with and without one site differs by that site's own sum.

The same question to cohorts that differ by one site: a share of the parties in each round, a step repeated without one
that was lost, leaving one out on purpose. What comes out is a transcript of that site alone, for the other attacks.
"""

from __future__ import annotations

import hashlib
from itertools import combinations

import numpy as np

from fedclust.core.ring import Exact
from fedclust.privacy.attacks.differencing import attack_by_differencing
from fedclust.privacy.attacks.transcript import Observation, RecoveredPoint, Transcript, difference


def attack_by_cohorts(transcript: Transcript) -> tuple[RecoveredPoint, ...]:
    """Return rows that can be recovered once sums are separated by site."""
    return attack_by_differencing(isolate_site_sums(transcript))


def isolate_site_sums(transcript: Transcript) -> list[Observation]:
    """Return each site's own sums, as far as sums over two cohorts reveal them."""
    same: dict[bytes, list[Observation]] = {}
    for seen in transcript:
        if len(seen.parties) > 1:
            same.setdefault(_question_digest(seen), []).append(seen)
    found: dict[tuple[int, tuple[str, ...]], Observation] = {}
    for asked in same.values():
        for one, other in combinations(asked, 2):
            more, fewer = (one, other) if len(one.parties) > len(other.parties) else (other, one)
            rest = set(more.parties) - set(fewer.parties)
            if len(rest) == 1 and set(fewer.parties) < set(more.parties):
                own = Observation(
                    more.step, more.question, tuple(rest), more.asked, _subtract_sums(more, fewer), more.roles
                )
                found.setdefault((more.step, own.parties), own)
    return sorted(found.values(), key=lambda seen: seen.step)


def _subtract_sums(more: Observation, fewer: Observation) -> dict[str, object]:
    """What one sum holds beyond another, field by field."""
    fields: dict[str, object] = {}
    for name in more.roles.sums:
        if (
            not (more.has_fields(name) and fewer.has_fields(name))
            or more.floats_of(name).shape != fewer.floats_of(name).shape
        ):
            continue
        a, b = more.answer[name], fewer.answer[name]
        exact = isinstance(a, Exact) and isinstance(b, Exact) and np.array_equal(a.unit, b.unit)
        fields[name] = difference(a, b) if exact else more.floats_of(name) - fewer.floats_of(name)
    return fields


def _question_digest(seen: Observation) -> bytes:
    """Return a digest of the question, without its parties and its unit."""
    digest = hashlib.sha256(seen.question.encode())
    for name, value in sorted(seen.asked.items()):
        if isinstance(value, (np.ndarray, int, float, bool, str)) and name not in ("shifts", "reach"):
            digest.update(name.encode() + np.asarray(value).tobytes())
    return digest.digest()
