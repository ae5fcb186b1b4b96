"""Runs an approved study's own script at a site, in a thread that waits at each step for what became of it.

The script is the coordinator's: the fit or the choice of K, then the description, then the question whether all sites
found the same model. A later round continues from the model that the site found in the round before.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedclust.app.analysis import describe, read_model_facts
from fedclust.app.choose_k import Selection
from fedclust.app.fit_study import fit_study
from fedclust.app.served_study import UnreachedSites, open_served_study
from fedclust.app.study import OpenStudy, Study
from fedclust.core.atomic_files import log_error
from fedclust.core.effects import Ask
from fedclust.core.envelope import Call
from fedclust.core.errors import QuorumLost
from fedclust.core.run_series import parse_series, previous_run_name
from fedclust.core.types import PartyId
from fedclust.federation.federation import Federation
from fedclust.models import FederatedEstimator
from fedclust.models.methods import load
from fedclust.privacy.verified.outcomes import ExpectedStep
from fedclust.privacy.verified.transcript import confirm_model
from fedclust.site.verified_run import stored_model_path

MAX_SCRIPT_SECONDS = 600.0  # between two questions; a script that takes longer is given up


class ReplayEnded(BaseException):
    """Raised in a script that waits, to end it; no code of an algorithm catches it."""


class ScriptReplay:
    """A script in a thread of its own. Only one side runs at a time: the script, or whoever tells it what it gets."""

    def __init__(self, run_script: Callable[[ScriptReplay], None], log: Callable[[Exception], None]) -> None:
        self.expected: ExpectedStep | None = None
        self.failure = ""
        self.model = ""
        self.group_keys: Callable[[], str | None] = lambda: None
        self._result: Any = None
        self._is_closed = False
        self._script_may_run, self._script_waits = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(run_script, log), daemon=True)
        self._thread.start()
        self._wait_for_script()

    def settle(self, result: object) -> None:
        """Tell the script what it gets from the step that it waits at, and wait until it comes to the next one."""
        self.expected, self._result = None, result
        self._script_waits.clear()
        self._script_may_run.set()
        self._wait_for_script()

    def close(self) -> None:
        """End the script; one that computes ends when it comes to its next step."""
        self._is_closed = True
        self.expected = None
        self._script_may_run.set()

    def settle_step(self, ask: Ask, calls: Mapping[PartyId, Call], need: int) -> Any:
        """Wait at a step; called by the script's coordinator, in the script's thread."""
        step = next(iter(calls.values())).step
        if self.failure:
            raise ReplayEnded
        self.expected = ExpectedStep(step, ask, calls, need, self.group_keys())
        self._script_may_run.clear()
        if self._is_closed:
            raise ReplayEnded
        self._script_waits.set()
        self._script_may_run.wait()
        if self._is_closed:
            raise ReplayEnded
        if isinstance(self._result, QuorumLost):
            raise self._result
        return self._result

    def _run(self, run_script: Callable[[ScriptReplay], None], log: Callable[[Exception], None]) -> None:
        try:
            run_script(self)
        except ReplayEnded:
            pass
        except Exception as error:  # noqa: BLE001 a script that fails asks nothing more
            self.failure = self.failure or "script-stopped"
            log(error)
        finally:
            self.expected = None
            self._script_waits.set()

    def _wait_for_script(self) -> None:
        if not self._script_waits.wait(MAX_SCRIPT_SECONDS):
            self.failure = "script-stopped"  # it ends at its next step
            self.expected = None


class VerifiedStudy:
    """A study that a site runs itself; `folder` is the site's state, with the models that it found."""

    def __init__(self, study: Study, folder: Path | None) -> None:
        self._study = study
        self._folder = folder

    def open_replay(self, run: str) -> ScriptReplay:
        """Begin the script of a run."""
        return ScriptReplay(lambda replay: self._run_script(replay, run), self._log)

    def _log(self, error: Exception) -> None:
        if self._folder is not None:
            log_error(self._folder, "script-stopped", error)

    def _run_script(self, replay: ScriptReplay, run: str) -> None:
        ready = open_served_study(self._study, UnreachedSites(tuple(site.name for site in self._study.sites)))
        fed = ready.fed
        fed.replay_steps(replay, run)
        replay.group_keys = lambda: fed.group_keys
        if parse_series(run)[1] == 1:
            model, selection = fit_study(ready)
        else:
            model, selection = self._updated_model(replay, ready, run), None
        replay.model = model_text(model)
        ask_what_describes(model, ready, selection)
        fed.run(confirm_model(digest_model_text(replay.model)))

    def _updated_model(self, replay: ScriptReplay, ready: OpenStudy, run: str) -> FederatedEstimator:
        path = None if self._folder is None else stored_model_path(self._folder, previous_run_name(run))
        if path is None or not path.is_file():
            replay.failure = "no-earlier-model"
            raise FileNotFoundError(f"there is no model of the round before at {path}")
        model = load(path)
        model.update(ready.fed)
        return model


def ask_what_describes(model: FederatedEstimator, ready: OpenStudy, selection: Selection | None) -> None:
    """Ask the questions of a description; one that fails ends, as it does at the coordinator."""
    with suppress(Exception):
        describe(model, ready.fed, selection, read_model_facts(model))


def model_text(model: FederatedEstimator) -> str:
    """Return a model as its file holds it."""
    return json.dumps(model.to_document(), indent=1) + "\n"


def digest_model_text(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def confirm_with_sites(fed: Federation, text: str) -> list[str]:
    """Ask the sites whether their own replays found this model; return a note if one did not confirm it."""
    try:
        fed.run(confirm_model(digest_model_text(text)))
    except QuorumLost as lost:
        return [f"Not every site confirmed that its own run of the script found this model: {lost}"]
    return []
