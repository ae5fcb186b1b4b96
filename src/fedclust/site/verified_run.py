"""One verified run at a site: the replay of the study's script, and a transcript of what it was given.

The site answers only the question that the script asks next. What a call brings is checked, given to the replay, and
stored once the site answers the call. A call that does not follow from it, or that a rule refuses, changes nothing: the
outcomes that came with it are forgotten as soon as the next call brings others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol as Structural

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.envelope import Call
from fedclust.core.errors import KeysRefused, WireError
from fedclust.core.site_interface import Vault
from fedclust.core.types import PartyId
from fedclust.privacy.verified.group_key import SELF_PROVEN, read_group_key
from fedclust.privacy.verified.outcomes import ExpectedStep, StepOutcome, bound_digest, read_outcome
from fedclust.privacy.verified.transcript import finish
from fedclust.site.transcript_file import TranscriptFile

FILE_NAME_PATTERN = re.compile(r"[0-9a-f]{1,64}(\.[0-9]{1,9})?-[0-9a-f]{32}")  # run names that can name a folder


class StudyReplay(Structural):
    """A study's script, run at a site. It waits at each step until it is told what became of it."""

    @property
    def expected(self) -> ExpectedStep | None:
        """The step that it waits at; None once it has ended or failed."""

    @property
    def failure(self) -> str:
        """The code of the refusal if the script could not begin or go on; empty otherwise."""

    @property
    def model(self) -> str:
        """The text of the model, once the script has found it."""

    def settle(self, result: object) -> None:
        """Tell it what it gets from the step; an exception is raised in the script."""

    def close(self) -> None:
        """End it, wherever it is."""


ReplayOpener = Callable[[str], StudyReplay]
"""Begins the script of a run."""


class CallRefused(Exception):
    """A call that a verified run does not answer, with the code of the refusal."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


def stored_model_path(folder: Path, run: str) -> Path:
    """Return where a site stores the model of a run that its own replay found."""
    name = run if FILE_NAME_PATTERN.fullmatch(run) else hashlib.sha256(run.encode()).hexdigest()[:32]
    return folder / "models" / name / "model.json"


class VerifiedRun:
    """What a site knows of one run: its transcript, and a replay that has come as far."""

    def __init__(
        self, run: str, party: PartyId, folder: Path | None, open_replay: ReplayOpener, vault: Callable[[], Vault]
    ) -> None:
        self.run = run
        self.party = party
        self._folder = folder
        self._open_replay = open_replay
        self._vault = vault
        name = hashlib.sha256(run.encode()).hexdigest()[:32]
        self._transcript = TranscriptFile(folder / "transcripts" / name if folder else None)
        self._replay: StudyReplay | None = None
        self._tentative: list[bytes] = []  # given to the replay, but not stored

    def follow(self, call: Call) -> str | None:
        """Accept a call if it is the next one of the script; return the keys under which its answer is proved.

        Otherwise raise CallRefused.
        """
        first, outcomes, known = call.earlier.first, call.earlier.outcomes, len(self._transcript.digests)
        if not 1 <= first <= known + 1 or len(outcomes) < known + 1 - first:
            raise CallRefused("outcomes-missing", f"the call brings outcomes from step {first} on, after {known}")
        stored, new = outcomes[: known + 1 - first], outcomes[known + 1 - first :]
        if [hashlib.sha256(one).digest() for one in stored] != self._transcript.digests[first - 1 :]:
            raise CallRefused("other-outcomes", "the call brings other outcomes than an earlier call")
        replay = self._advance(list(new))
        expected = replay.expected
        if expected is None:
            raise CallRefused(replay.failure or "not-next-question", "the script asks nothing more")
        self._check_call(call, expected)
        return None if expected.handler.name in SELF_PROVEN else expected.keys

    def commit(self) -> None:
        """Store the outcomes that led to the call that is being answered, before its answer leaves."""
        self._transcript.append(self._tentative)
        self._tentative = []

    def store_model(self) -> Path | None:
        """Store the model that the site's own replay has found."""
        if self._folder is None or self._replay is None or not self._replay.model:
            return None
        path = stored_model_path(self._folder, self.run)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, self._replay.model)
        return path

    def close(self) -> None:
        if self._replay is not None:
            self._replay.close()

    def _advance(self, new: list[bytes]) -> StudyReplay:
        """Return the replay after all stored and these new outcomes."""
        failed = self._replay is None or self._replay.failure  # a script that failed may be able to go on now
        if failed or self._tentative != new[: len(self._tentative)]:
            self._rebuild()
        replay = self._replay
        if replay is None:
            raise CallRefused("script-stopped", "the script could not begin")
        for outcome in new[len(self._tentative) :]:
            self._give(replay, outcome, is_stored=False)
            self._tentative.append(outcome)
        return replay

    def _rebuild(self) -> None:
        """Begin the script again and give it everything that is stored."""
        if self._replay is not None:
            self._replay.close()
        self._replay, self._tentative = self._open_replay(self.run), []
        for outcome in self._transcript.outcomes():
            self._give(self._replay, outcome, is_stored=True)

    def _give(self, replay: StudyReplay, outcome: bytes, *, is_stored: bool) -> None:
        expected = replay.expected
        if expected is None:
            raise CallRefused(replay.failure or "not-next-question", "the call brings outcomes after the last step")
        try:
            result = read_outcome(wire.decode(StepOutcome, outcome), expected, self._secret(expected))
        except (KeysRefused, WireError, ValueError) as error:
            if is_stored:
                raise
            raise CallRefused("not-proven", f"step {expected.step}, {expected.handler.name}: {error}") from error
        replay.settle(result)

    def _secret(self, expected: ExpectedStep) -> bytes | None:
        if expected.handler.name in SELF_PROVEN or expected.keys is None:
            return None
        return read_group_key(self._vault(), expected.keys)

    def _check_call(self, call: Call, expected: ExpectedStep) -> None:
        mine = expected.calls.get(self.party)
        if mine is not None and bound_digest(call) == bound_digest(mine):
            return
        asked = f"step {call.step}, {call.handler}"
        wanted = f"step {expected.step}, {expected.handler.name}"
        if mine is not None and (call.step, call.handler) == (mine.step, finish.name):
            raise CallRefused("another-model", "the coordinator's model is not the one that the site's replay found")
        raise CallRefused("not-next-question", f"the call is for {asked}; the script comes to {wanted}")
