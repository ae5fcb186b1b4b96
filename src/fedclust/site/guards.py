"""The rules of the gate, one function each: a code to refuse with, or None to let pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclust.core.envelope import Call
from fedclust.core.protocol import Handler
from fedclust.core.release import HIDDEN
from fedclust.core.types import Ints
from fedclust.site.policy import Policy


@dataclass(frozen=True)
class Question:
    """What a guard may look at before anything is computed."""

    call: Call
    handler: Handler[Any, Any]
    policy: Policy
    rows: int


Guard = Callable[[Question], str | None]


def allowed(q: Question) -> str | None:
    """The policy lists the questions that may be asked."""
    return None if q.policy.allows(q.handler.name) else "handler-not-allowed"


def enough_rows(q: Question) -> str | None:
    """A site with fewer rows than its floor takes part in nothing."""
    return "too-few-rows" if q.rows < q.policy.min_rows else None


def sums_only(q: Question) -> str | None:
    """A sum never leaves as one party's own, what is shown cannot be summed away, and letters go sealed."""
    combine = {"total": "sum", "each": "each", "relay": "letters"}[q.call.want]
    if combine == "letters" and q.call.masks is None:
        return "not-a-sum"
    return None if all(d.combine == combine for d in q.handler.release.schema().values()) else "not-a-sum"


def hide_small(counts: Ints, floor: int) -> Ints:
    """Counts with every one from 1 to floor - 1 hidden.

    A single hidden count would follow from the total, so the smallest of the others is hidden with it.

    >>> hide_small(np.array([20, 3, 9]), 5).tolist()
    [20, -1, -1]
    """
    hidden = (counts > 0) & (counts < floor)
    if hidden.sum() == 1 and counts.size > 1:
        others = np.where(hidden | (counts == 0), np.iinfo(np.int64).max, counts)
        hidden = hidden | (np.arange(counts.size).reshape(counts.shape) == others.argmin())
    return np.where(hidden, HIDDEN, counts)


ENTRY: tuple[Guard, ...] = (allowed, enough_rows, sums_only)
