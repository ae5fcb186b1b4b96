"""This benchmark measures the cost of revealing only labels, and what the distance attack recovers in that mode."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import fedclust as fc
from benchmarks import timing
from fedclust.app.audit.observer_record import record_federation
from fedclust.core.types import Array, Floats, Limbs
from fedclust.privacy import attacks, secret_argmin
from fedclust.privacy.attacks.unfolding import UnfoldedRows

ROUNDS = 6
Heard = dict[int, list[Limbs]]


def main(*, json: bool, rows: int = 2000) -> int:
    """Measure and print."""
    table = [measured(rows, k) for k in (3, 10)]
    return timing.show({"machine": timing.machine(), "labels": table}, table, as_json=json)


def measured(rows: int, k: int, sites: int = 3, width: int = 2) -> dict[str, Any]:
    """Compare a run that reveals labels with one that reveals distances: labels, time, bytes, and attack c on both."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(rows, sites * width)) + 3.0 * rng.normal(size=(k, sites * width))[rng.integers(k, size=rows)]
    start = X[rng.choice(rows, k, replace=False)] + rng.normal(size=(k, sites * width))
    parts = {f"site {i}": X[:, i * width : (i + 1) * width] for i in range(sites)}
    few, _, short = _run(parts, start, "labels", 1)
    many, seconds, long = _run(parts, start, "labels", ROUNDS)
    exact, _, _ = _run(parts, start, "distances", ROUNDS)
    right = float((many["model"].labels_ == exact["model"].labels_).mean())
    guess = _error(None, X)
    seats = max((_error(seen, X) / guess for seen in many["heard"]), default=np.inf)
    least = min((_error(seen, X) / guess for seen in many["heard"]), default=np.inf)
    found = {
        "bench": f"{rows} rows, {sites} sites, {k} clusters",
        "right labels": right,
        "ms a round": (seconds - few["seconds"]) / (ROUNDS - 1) * 1e3,
        "CPU ms a round, all sites": (many["busy"] - few["busy"]) / (ROUNDS - 1) * 1e3,
        "MB a round, in all": (long - short) / (ROUNDS - 1) / 1e6,
        "exchanges a round": 1 + secret_argmin.rounds(k),
        "matrices to unfold": many["unfolded"],
        "error / guess: distances": _error(exact["opened"], X) / guess,
        "error / guess: a seat, least": least,
        "error / guess: a seat, most": seats,
        "error / guess: messages": _error(many["messages"], X) / guess,
        "error / guess: labels": _error_by_cluster(many["model"].labels_, X) / guess,
    }
    missed = [] if right == 1.0 else [f"{right:.2%} of labels are correct, 100% expected"]
    if min(least, found["error / guess: messages"]) < 1 or many["unfolded"]:
        missed.append("the attack on distances is better than guessing")
    return {**found, "missed": missed}


def _run(parts: dict[str, Floats], start: Floats, opens: str, rounds: int) -> tuple[dict[str, Any], float, int]:
    """One run: its result and what participants saw, its seconds, and the bytes that left all sites."""
    fed = fc.Federation.local(parts, split="columns")
    recording = record_federation(fed)
    model = fc.KMeans(len(start), init=start, opens=opens, tol=None, max_iter=rounds)
    with _listening() as heard:
        begin, busy = time.perf_counter(), time.process_time()
        model.fit(fed)
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    seen = recording.coordinator_view()
    rows = len(next(iter(parts.values())))
    messages = [text for one in seen if one.has_fields("messages") for text in one.answer["messages"].values()]
    whole = [one.floats_of("d2") for one in seen if one.has_fields("d2") and len(one.parties) > 1]
    found = {
        "model": model,
        "seconds": seconds,
        "busy": busy,
        "unfolded": len(attacks.attack_by_unfolding(seen)) if opens == "labels" else None,
        "opened": np.concatenate(whole) if whole else None,
        "heard": [_numbers(own, rows) for own in heard.values() if own],
        "messages": _as_numbers(b"".join(messages), rows),
    }
    return found, seconds, sum(own["bytes"] for own in fed.traffic().values())


@contextmanager
def _listening() -> Iterator[Heard]:
    """What each participant sees when numbers are shared: its neighbour's masked differences of distances."""
    found: Heard = {}
    plain = secret_argmin.advance_comparison

    def advanced(
        seat: secret_argmin.Seat, state: Mapping[str, Array], received: Limbs
    ) -> tuple[dict[str, Array], Limbs]:
        if "own" in state:
            found.setdefault(seat.place, []).append(received.reshape(secret_argmin.COMPARED_BITS, -1))
        return plain(seat, state, received)

    secret_argmin.advance_comparison = advanced
    try:
        yield found
    finally:
        secret_argmin.advance_comparison = plain


def _numbers(planes: list[Limbs], rows: int) -> Floats:
    """Bit planes read as numbers and treated as distances, centres by rows."""
    found = []
    for one in planes:
        bits = secret_argmin.unpack_planes(one, 10**9).astype(np.float64)
        numbers = (
            bits * np.ldexp(1.0, np.arange(secret_argmin.COMPARED_BITS) - secret_argmin.COMPARED_BITS)[:, None]
        ).sum(axis=0)
        padded = -(-rows // secret_argmin.ROWS_PER_WORD) * secret_argmin.ROWS_PER_WORD
        found.append(numbers.reshape(-1, padded)[:, :rows])
    return np.concatenate(found)


def _as_numbers(data: bytes, rows: int) -> Floats | None:
    """Encrypted bytes read as numbers and treated as distances."""
    words: Array = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)[: 60 * rows]
    return (
        None
        if len(words) < 20 * rows
        else np.ldexp(words[: len(words) // rows * rows].astype(float), -64).reshape(-1, rows)
    )


def _error(seen: Floats | None, X: Floats) -> float:
    """Root mean square error of attack c on unknown rows, given F + 1 rows; without distances, that of their mean."""
    known = np.arange(X.shape[1] + 1)
    if seen is None:
        return _off(np.broadcast_to(X[known].mean(axis=0), X.shape), X)
    d2 = seen.T
    product = -0.5 * (d2 - d2.mean(axis=0) - d2.mean(axis=1, keepdims=True) + d2.mean())
    left = np.linalg.svd(product, full_matrices=False)[0][:, : X.shape[1]] * np.sqrt(len(X))
    return _off(attacks.complete_rows(UnfoldedRows(left, False, ()), X[known], known), X)


def _error_by_cluster(labels: Array, X: Floats) -> float:
    """The same for a guess from labels: the mean of the known rows in a row's cluster, if there are any."""
    known = np.arange(X.shape[1] + 1)
    points = np.broadcast_to(X[known].mean(axis=0), X.shape).copy()
    for cluster in np.unique(labels[known]):
        points[labels == cluster] = X[known][labels[known] == cluster].mean(axis=0)
    return _off(points, X)


def _off(points: Floats, X: Floats) -> float:
    rest = (points - X)[X.shape[1] + 1 :] / X.std(axis=0)
    return float(np.sqrt((rest**2).mean()))
