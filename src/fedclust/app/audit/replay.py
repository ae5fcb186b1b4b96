"""Replays a finished run from its own journals, without asking a site, to see what its participants saw."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedclust.app.analysis import describe
from fedclust.app.audit.observer_record import Recording, read_adder_journal, record_replay
from fedclust.app.execute import open_recorded_study
from fedclust.app.fit_study import fit_study
from fedclust.app.run_folder import Run
from fedclust.app.study import OpenStudy
from fedclust.core.drive import decode_replies
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import DataError, FedclustError, StudyError
from fedclust.core.journal import ANSWER_RECORD, Journal
from fedclust.core.types import Floats, PartyId
from fedclust.privacy.attacks.transcript import Observation, roles_by_name
from fedclust.questions.choice_of_k.choice_questions import GroupMoments


@dataclass(frozen=True)
class RunHistory:
    """What was seen of a run, and the rows to compare with if they are available."""

    mode: str
    split: str
    parties: tuple[PartyId, ...]
    coordinator: list[Observation]
    lead: list[Observation] = field(default_factory=list)
    sites: Mapping[PartyId, list[Observation]] = field(default_factory=dict)
    rows: Mapping[PartyId, Floats] = field(default_factory=dict)
    groups: Sequence[tuple[Any, GroupMoments]] = ()  # the sums of a choice of K, with their questions
    why_unchecked: str = ""


class _UnreachableEngine:
    """An engine that reaches no site: a replay that asks something new must stop."""

    def __init__(self, parties: tuple[PartyId, ...]) -> None:
        self.parties = parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> NoReturn:  # noqa: ARG002
        raise StudyError("the journal has no further answers")


def replay_run(run: Run) -> RunHistory:
    """Return what the participants of a finished run saw, with all questions if the study's rows are available."""
    if not run.is_finished:
        raise StudyError(f"{run.folder} is not finished; continue with: fedclust resume {run.folder}")
    with _copy_run_folder(run) as copy:
        try:
            ready = open_recorded_study(run, copy)
        except (DataError, StudyError, OSError) as error:
            return _answers_only(run, copy, f"the rows are missing or have changed ({error})")
        try:
            return _replay_from_journal(ready, copy)
        except FedclustError as error:
            return _answers_only(run, copy, f"the run could not be replayed ({error})")


@contextmanager
def _copy_run_folder(run: Run) -> Iterator[Path]:
    """Copy the run folder, so that an audit does not change it."""
    with run.lock(), tempfile.TemporaryDirectory(prefix="fedclust-audit-") as folder:
        yield Path(shutil.copytree(run.folder, Path(folder) / "run"))


def _replay_from_journal(ready: OpenStudy, copy: Path) -> RunHistory:
    fed = ready.fed
    fed.use_engine(_UnreachableEngine(fed.parties))
    try:
        recording = record_replay(fed)
        model, selection = fit_study(ready)
        describe(model, fed, selection)
    finally:
        fed.close()
    if fed.aggregation.is_blind:
        recording.exchanges = read_adder_journal(copy / "coordinator" / "journal")
    return RunHistory(
        fed.aggregation.mode,
        fed.split,
        fed.parties,
        recording.coordinator_view(),
        recording.lead_view() if recording.blind else [],
        {party: recording.site_view(party) for party in fed.parties},
        {party: _rows_without_gaps(own_data) for party, own_data in fed.site_data.items()},
        [(one.ask.message, one.total) for one in recording.opened_sums if isinstance(one.total, GroupMoments)],
    )


def _rows_without_gaps(site_data: Any) -> Floats:
    """Return a site's rows as the study reads them, without those that have missing values."""
    rows = np.concatenate([np.asarray(block, np.float64).T for block in site_data.source.blocks()])
    return np.asarray(rows[~np.isnan(rows).any(axis=1)], np.float64)


def _answers_only(run: Run, copy: Path, why: str) -> RunHistory:
    """Return the answers in a journal, without their questions, and the sums that a reader of it can compute."""
    study, recording = run.study(), Recording(blind=False)
    mode = study.aggregation.mode
    path = copy / "coordinator" / "journal" if mode == "blind" else copy / "journal"
    seen = list[Observation]()
    if mode != "blind":
        journal = Journal(path)
        for step in range(1, journal.last_step + 1):
            if (answered := journal.recall(ANSWER_RECORD, step)) is not None:
                recording.exchanges.append(({}, decode_replies(answered)))
        journal.close()
    for step, (_, replies) in enumerate(recording.exchanges, 1):
        sealed = [reply for reply in replies.values() if isinstance(reply, SealedAnswer)]
        for one in sealed:
            fields = {name: one.release.field_value(name) for name in one.release.schema()}
            roles = roles_by_name(one.handler)
            seen.append(Observation(one.step, one.handler, (one.party,), {}, fields, roles))
        kinds = sealed[0].release.schema().values() if sealed else ()
        if len(sealed) > 1 and kinds and all(kind.combine == "sum" for kind in kinds):
            total = sealed[0].release.total([one.release for one in sealed])
            fields = {name: total.field_value(name) for name in total.schema()}
            roles = roles_by_name(sealed[0].handler)
            seen.append(Observation(step, sealed[0].handler, tuple(one.party for one in sealed), {}, fields, roles))
    return RunHistory(mode, study.split, tuple(site.name for site in study.sites), seen, why_unchecked=why)
