"""The conformance checks state what every registered algorithm must do on every engine; each takes a `Bench`.

>>> sorted(CHECKS)[:2]
['check_a_recorded_run_replays_without_its_sites', 'check_answers_are_pure']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import SealedAnswer
from fedclust.core.errors import QuorumLost
from fedclust.core.types import Array, Floats, PartyId
from fedclust.federation.federation import Federation
from fedclust.models.base import FederatedEstimator, Model
from fedclust.testing.faulty_engines import Faulty, Replay


class Bench(Protocol):
    """What a check needs: estimators by seed, and federations over the engine under test."""

    def estimator(self, seed: int = 0) -> FederatedEstimator: ...
    def federation(self, sites: Mapping[PartyId, Array], **options: Any) -> Federation: ...
    @property
    def folder(self) -> Path: ...


def is_lossless(estimator: Model) -> bool:
    """Whether a method promises the result of the pooled run; one that does not has `lossless = False` and a note."""
    return estimator.lossless


def make_sites(seed: int = 0, rows: int = 60, parties: int = 4, width: int = 3) -> dict[PartyId, Array]:
    """Three separated groups of rows, split unevenly among parties."""
    rng = np.random.default_rng(seed)
    centers = np.arange(3)[:, None] * 8.0 + rng.normal(size=(3, width))
    X = rng.normal(size=(rows, width)) + centers[rng.integers(3, size=rows)]
    cuts = np.sort(rng.choice(np.arange(8, rows - 8), parties - 1, replace=False))
    return {f"p{i}": part for i, part in enumerate(np.split(X, cuts))}


def check_runs_and_says_where_the_centres_are(bench: Bench) -> None:
    model = bench.estimator().fit(bench.federation(make_sites()))
    assert np.isfinite(_centers(model)).all()
    assert model.n_iter_ == len(model.history_)
    assert any(note.startswith("Not lossless") for note in model.notes_) != is_lossless(model)


def check_same_seed_same_bits(bench: Bench) -> None:
    first, second = (bench.estimator(7).fit(bench.federation(make_sites())) for _ in range(2))
    assert _is_same_model(first, second)


def check_party_order_does_not_matter(bench: Bench) -> None:
    parts = make_sites()
    start = bench.estimator().fit(bench.federation(parts)).initial_centers_
    backwards = dict(reversed(parts.items()))
    # A method without settable initial centres chooses by seed and party, in any order of the parties.
    given = {"init": start} if bench.estimator().takes_initial_centers else {}
    first, second = (bench.estimator().set_params(**given).fit(bench.federation(p)) for p in (parts, backwards))
    assert _is_same_model(first, second)


def check_equals_the_pooled_run(bench: Bench) -> None:
    if not is_lossless(bench.estimator()):
        return
    parts = make_sites()
    federated = bench.estimator().fit(bench.federation(parts))
    pooled = bench.estimator().set_params(init=federated.initial_centers_).fit(np.concatenate(list(parts.values())))
    assert _is_same_model(federated, pooled)


def check_one_row_sites_take_part(bench: Bench) -> None:
    X = np.concatenate(list(make_sites().values()))
    parts = {"many": X[2:], "one": X[:1], "two": X[1:2]}
    model = bench.estimator().fit(bench.federation(parts))
    assert np.isfinite(_centers(model)).all()


def check_bytes_carried_are_bytes_in_the_ledger(bench: Bench) -> None:
    fed = bench.federation(make_sites())
    bench.estimator().fit(fed)
    carried = fed.received_bytes()
    assert carried == {party: own["bytes"] for party, own in fed.traffic().items()}
    assert min(carried.values()) > 0


def check_drop_outs_end_in_a_result_or_a_clear_refusal(bench: Bench) -> None:
    for step in range(1, 8):
        fed = bench.federation(make_sites())
        fed.use_engine(Faulty(fed.engine, lambda s, p, step=step: "silent" if (s, p) == (step, "p1") else None))  # type: ignore[misc]
        model, lost = _fit_or_quorum_lost(bench, fed)
        assert (lost is None) != (model is None)
        assert lost is None or ("p1" in str(lost) and lost.missing == {"p1": "no-answer"})
        assert model is None or np.isfinite(_centers(model)).all()


def check_late_and_foreign_answers_are_not_used(bench: Bench) -> None:
    """In plain mode the run ends; a masked sum is asked for again; masks cannot replace a single site's answer."""
    wants = _list_wants(bench)
    step = min(4, len(wants))
    for fault in ("late", "foreign"):
        fed = bench.federation(make_sites())
        fed.use_engine(Faulty(fed.engine, lambda s, p, fault=fault: fault if (s, p) == (step, "p2") else None))  # type: ignore[misc]
        model, lost = _fit_or_quorum_lost(bench, fed)
        if fed.aggregation.mode == "plain" or (wants[step - 1] == "each" and lost is not None):
            assert lost is not None, (
                f"the run used an answer that was {fault}; it must use only current answers of its own sites"
            )
            assert lost.missing == {"p2": "no-answer"}
        else:  # the step is repeated under fresh masks
            assert _is_same_model(model, bench.estimator().fit(bench.federation(make_sites())))


def check_a_recorded_run_replays_without_its_sites(bench: Bench) -> None:
    """A blind run needs the lead's keys, so it cannot be replayed without its sites."""
    with bench.federation(make_sites(), run=bench.folder) as fed:
        if fed.aggregation.is_blind:
            return
        live = bench.estimator().fit(fed)
        run, parties = fed.run_id, fed.parties
    with Replay(bench.folder / "journal", parties) as past:
        again = bench.federation(make_sites())
        again.use_engine(past, run=run)
        assert _is_same_model(live, bench.estimator().fit(again))


def check_answers_are_pure(bench: Bench) -> None:
    """The same call at a new site server gives the same answer and leaves the rows unchanged; only masks are new."""
    parts = make_sites()
    kept = {party: rows.copy() for party, rows in parts.items()}
    calls: list[Any] = []
    fed = bench.federation(parts)
    fed.use_engine(_Recorder(fed.engine, calls))
    bench.estimator().fit(fed)
    again = bench.federation(kept)
    if again.aggregation.mode != "plain":
        calls = []
    for step, replies in calls:
        answers = again.engine.exchange(step, timeout=None, quorum=0)
        assert {party: reply.wire_bytes for party, reply in answers.items() if isinstance(reply, SealedAnswer)} == {
            party: reply.wire_bytes for party, reply in replies.items()
        }
    assert all(np.array_equal(kept[party], rows) for party, rows in parts.items())


def check_every_question_declares_what_it_discloses(bench: Bench) -> None:
    calls: list[Any] = []
    fed = bench.federation(make_sites())
    fed.use_engine(_Recorder(fed.engine, calls))
    bench.estimator().fit(fed)
    asked = {call.handler for step, _ in calls for call in step.values()}
    assert asked
    for name in asked:
        for disclosure in HANDLERS[name].schema.values():
            assert disclosure.why


class _Recorder:
    """Wraps an engine and records every exchange."""

    def __init__(self, engine: Any, calls: list[Any]) -> None:
        self.engine, self.calls, self.parties = engine, calls, engine.parties

    def exchange(self, calls: Mapping[PartyId, Any], *, timeout: float | None, quorum: int) -> dict[PartyId, Any]:
        replies: dict[PartyId, Any] = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.calls.append((calls, replies))
        return replies


def _list_wants(bench: Bench) -> list[str]:
    """What each question of a run asks for: a total, or one answer per site."""
    calls: list[Any] = []
    fed = bench.federation(make_sites())
    fed.use_engine(_Recorder(fed.engine, calls))
    bench.estimator().fit(fed)
    return [next(iter(asked.values())).want for asked, _ in calls]


def _fit_or_quorum_lost(bench: Bench, fed: Federation) -> tuple[Any, QuorumLost | None]:
    try:
        return bench.estimator().fit(fed), None
    except QuorumLost as lost:
        return None, lost


def _centers(model: Model) -> Floats:
    assert model.cluster_centers_ is not None, (
        f"{type(model).__name__} has no cluster_centers_; these checks apply to methods with centres"
    )
    return model.cluster_centers_


def _is_same_model(a: Model, b: Model) -> bool:
    return bool(
        np.array_equal(_centers(a), _centers(b))
        and a.final_objective == b.final_objective
        and a.n_iter_ == b.n_iter_
        and a.history_ == b.history_
    )


CHECKS: dict[str, Callable[[Bench], None]] = {
    name: check for name, check in globals().items() if name.startswith("check_")
}
