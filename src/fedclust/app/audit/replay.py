"""A finished run gone through again from its own journals, without asking a site, to see what its participants saw."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedclust.app.analysis import describe
from fedclust.app.audit.observer_record import Recording, record_replay, seen_by_adder
from fedclust.app.choose_k import select_k
from fedclust.app.execute import open_recorded_study
from fedclust.app.run_folder import Run
from fedclust.app.study import OpenStudy
from fedclust.core.drive import _unpack
from fedclust.core.envelope import Call, Sealed
from fedclust.core.errors import DataError, FedclustError, StudyError
from fedclust.core.journal import ANSWERED, Journal
from fedclust.core.types import Floats, PartyId
from fedclust.privacy.attacks.transcript import Seen


@dataclass(frozen=True)
class Past:
    """What was seen of a run, and the rows to compare with where they are at hand."""

    mode: str
    split: str
    parties: tuple[PartyId, ...]
    coordinator: list[Seen]
    lead: list[Seen] = field(default_factory=list)
    sites: Mapping[PartyId, list[Seen]] = field(default_factory=dict)
    rows: Mapping[PartyId, Floats] = field(default_factory=dict)
    why_unchecked: str = ""


class _Nobody:
    """An engine that reaches no one: a replay that asks something new must stop."""

    def __init__(self, parties: tuple[PartyId, ...]) -> None:
        self.parties = parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> NoReturn:  # noqa: ARG002
        raise StudyError("the journal ends here")


def replayed(run: Run) -> Past:
    """What the participants of a finished run saw, with all questions where the study's rows are still there."""
    if not run.finished:
        raise StudyError(f"{run.folder} is not finished; go on with: fedclust resume {run.folder}")
    with _copied(run) as copy:
        try:
            ready = open_recorded_study(run, copy)
        except (DataError, StudyError, OSError) as error:
            return _answers_only(run, copy, f"the rows are not at hand as they were ({error})")
        try:
            return _gone_through(ready, copy)
        except FedclustError as error:
            return _answers_only(run, copy, f"the run could not be gone through again ({error})")


@contextmanager
def _copied(run: Run) -> Iterator[Path]:
    """The run folder once more, so that an audit leaves it as it was."""
    with run.held(), tempfile.TemporaryDirectory(prefix="fedclust-audit-") as folder:
        yield Path(shutil.copytree(run.folder, Path(folder) / "run"))


def _gone_through(ready: OpenStudy, copy: Path) -> Past:
    fed = ready.fed
    fed.use(_Nobody(fed.parties))
    try:
        recording = record_replay(fed)
        model, selection = _refit(ready)
        describe(model, fed, selection)
    finally:
        fed.close()
    if fed.aggregation.blind:
        recording.exchanges = seen_by_adder(copy / "coordinator" / "journal")
    return Past(
        fed.aggregation.mode,
        fed.split,
        fed.parties,
        recording.coordinator(),
        recording.lead() if recording.blind else [],
        {party: recording.site(party) for party in fed.parties},
        {party: _rows(holding) for party, holding in fed.holdings.items()},
    )


def _refit(ready: OpenStudy) -> tuple[Any, Any]:
    choice = ready.study.cluster.choice
    if choice is None:
        return ready.estimator.fit(ready.fed), None
    found = select_k(ready.estimator, ready.fed, choice.ks, **choice.how)
    return found.model, found


def _rows(holding: Any) -> Floats:
    """A site's rows as the study reads them, those with gaps left out."""
    rows = np.concatenate([np.asarray(block, np.float64).T for block in holding.source.blocks()])
    return np.asarray(rows[~np.isnan(rows).any(axis=1)], np.float64)


def _answers_only(run: Run, copy: Path, why: str) -> Past:
    """The answers a journal holds, without their questions; sums are taken as whoever reads it can take them."""
    study, recording = run.study(), Recording(blind=False)
    mode = study.aggregation.mode
    path = copy / "coordinator" / "journal" if mode == "blind" else copy / "journal"
    seen = list[Seen]()
    if mode != "blind":
        journal = Journal(path)
        for step in range(1, journal.last + 1):
            if (answered := journal.recall(ANSWERED, step)) is not None:
                recording.exchanges.append(({}, _unpack(answered)))
        journal.close()
    for step, (_, replies) in enumerate(recording.exchanges, 1):
        sealed = [reply for reply in replies.values() if isinstance(reply, Sealed)]
        for one in sealed:
            fields = {name: one.release.field_value(name) for name in one.release.schema()}
            seen.append(Seen(one.step, one.handler, (one.party,), {}, fields))
        kinds = sealed[0].release.schema().values() if sealed else ()
        if len(sealed) > 1 and kinds and all(kind.combine == "sum" for kind in kinds):
            total = sealed[0].release.total([one.release for one in sealed])
            fields = {name: total.field_value(name) for name in total.schema()}
            seen.append(Seen(step, sealed[0].handler, tuple(one.party for one in sealed), {}, fields))
    return Past(mode, study.split, tuple(site.name for site in study.sites), seen, why_unchecked=why)
