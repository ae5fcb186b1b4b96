"""Work shared among threads: each takes the next piece until none is left. In integer sums it is lost who took what."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")

PIECES_PER_THREAD = 4  # a thread's share of the queue: enough that a late thread does not keep the others waiting

_count = int(os.environ.get("FEDCLUST_THREADS", "0")) or min(os.cpu_count() or 1, 8)
_pool: ThreadPoolExecutor | None = None
_thread_state = local()


def threads() -> int:
    """How many threads a large sweep uses; one where threads already share the work above it."""
    return 1 if getattr(_thread_state, "alone", False) else _count


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let this thread do its sweeps by itself."""
    _thread_state.alone = True
    try:
        yield
    finally:
        _thread_state.alone = False


def set_threads(n: int) -> None:
    """Use n threads in large sweeps; results do not depend on it."""
    global _count  # noqa: PLW0603  (a setting of the process)
    if n < 1:
        raise ValueError(f"the number of threads is {n}; it must be at least 1")
    _count = n
    _forget_pool()


def run_in_threads(pieces: Sequence[P], work: Callable[[Iterator[P]], R]) -> list[R]:
    """What each thread made of the pieces it took, the calling thread being one of them.

    Where one fails, or is broken off, the others end with the piece in hand.
    """
    queue = deque(pieces)

    def work_on_queue() -> R:
        try:
            return work(_drain(queue))
        except BaseException:
            queue.clear()
            raise

    helpers = [_workers().submit(work_on_queue) for _ in range(min(_count, len(pieces)) - 1)]
    own = work_on_queue()
    return [own] + [helper.result() for helper in helpers if not helper.cancel()]


def ranges(rows: int, min_rows: int) -> list[slice]:
    """Consecutive row ranges, PIECES for each thread, none much shorter than `min_rows`."""
    step = max(-(-rows // (_count * PIECES_PER_THREAD)), min_rows)
    return [slice(start, start + step) for start in range(0, rows, step)]


def _drain(queue: deque[P]) -> Iterator[P]:
    while True:
        try:
            piece = queue.popleft()
        except IndexError:
            return
        yield piece


def _workers() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603  (made when first needed)
    if _pool is None:
        _pool = ThreadPoolExecutor(_count, thread_name_prefix="fedclust")
    return _pool


def _forget_pool() -> None:
    global _pool  # noqa: PLW0603  (threads do not survive a fork)
    if _pool is not None:
        _pool.shutdown(wait=False)
    _pool = None


def _after_fork() -> None:
    global _pool  # noqa: PLW0603  (threads do not survive a fork)
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
