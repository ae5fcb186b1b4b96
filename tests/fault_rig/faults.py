"""Each fault disturbs real processes and must end in the right bits, or in a refusal that names the site.

`python -m fault_rig.faults` applies every fault on every engine and prints a table of outcomes.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_rig.misdeeds import (
    VICTIM,
    Patch,
    change_sum,
    die_after_writes,
    drop_last_number,
    fill_disk_after,
    hang_once,
    leave_out_victim,
    lie_about,
    refuse_from_fault_step,
    replace_by_huge,
    replace_by_nan,
    shift_step,
)
from fault_rig.stages import LONG_TIMEOUT, SETUPS, SITE_NAMES, EngineSetup
from fedclust.core.envelope import SealedAnswer

KILL_JOIN_SECONDS = 5.0  # time limit for a killed process to end, in seconds
FORK_CONTEXT = multiprocessing.get_context("fork")  # child processes share the command's imports


class UnexpectedOutcome(AssertionError):
    """A fault had an outcome that is not allowed."""


def load_command() -> Callable[[list[str]], int]:
    """The fedclust command, imported by name after the modules that it uses."""
    for name in ("app.execute", "app.serve"):
        importlib.import_module(f"fedclust.{name}")
    main: Callable[[list[str]], int] = importlib.import_module("fedclust.cli.main").main
    return main


def _run_child(words: list[str], out: Path, patch: Patch | None) -> None:
    os.setsid()
    file = out.open("a", buffering=1)  # stays open until the process ends
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = file  # the parent may have replaced them
    if patch is not None:
        patch()
    code = load_command()(words)
    sys.stdout.flush()
    os._exit(code)


@dataclass
class FaultRun:
    """One federation and its processes."""

    setup: EngineSetup
    folder: Path
    _processes: list[Any] = field(default_factory=list)

    def start_process(self, words: list[str], name: str, patch: Patch | None = None) -> Any:
        process = FORK_CONTEXT.Process(target=_run_child, args=(words, self.folder / f"{name}.log", patch))
        process.start()
        self._processes.append(process)
        return process

    def start_coordinator(self, *, timeout: float = LONG_TIMEOUT, patch: Patch | None = None) -> Any:
        begun = (self.folder / "run" / "origin.json").exists()
        words = self.setup.resume_words(timeout=timeout) if begun else self.setup.begin_words(timeout=timeout)
        return self.start_process(words, "coordinator", patch)

    def start_site(self, party: str, patch: Patch | None = None) -> Any:
        return self.start_process(self.setup.serve_words(party), party, patch)

    def start_sites(self, patch: Patch | None = None) -> dict[str, Any]:
        """Start all sites, the victim with a patch; none if sites are not separate processes."""
        if not self.setup.has_site_processes:
            return {}
        return {party: self.start_site(party, patch if party == VICTIM else None) for party in SITE_NAMES}

    def wait_for_exit(self, process: Any) -> int:
        """The exit code of a process."""
        process.join(self.setup.max_run_seconds)
        if process.exitcode is None:
            raise UnexpectedOutcome(
                f"a process still runs after {self.setup.max_run_seconds} s: {self.last_log_line()}"
            )
        return int(process.exitcode)

    def last_log_line(self, name: str = "coordinator") -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace").strip().rpartition("\n")[2] if path.exists() else ""

    def read_model(self) -> Any:
        return json.loads((self.folder / "run" / "model.json").read_text())

    def read_analysis(self) -> Any:
        return json.loads((self.folder / "run" / "analysis.json").read_text())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + self.setup.max_run_seconds
        while not condition():
            if time.monotonic() > end:
                raise UnexpectedOutcome(f"the expected condition did not occur: {self.last_log_line()}")
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._processes:
            signal_tree(process, signal.SIGCONT)
            kill(process)
        self.setup.close()


def kill(process: Any, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process group; after SIGKILL, wait until the process is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)
    if how is signal.SIGKILL:
        process.join(KILL_JOIN_SECONDS)


def signal_tree(process: Any, how: signal.Signals) -> None:
    """Send a signal to a process and all its descendants."""
    for pid in (process.pid, *descendant_pids(process.pid)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)


def descendant_pids(pid: int) -> list[int]:
    """The ids of a process's children and their descendants."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(path.parent.name), *descendant_pids(int(path.parent.name))]
    return found


@contextmanager
def open_fault_run(stage: EngineSetup, more: str = "") -> Iterator[FaultRun]:
    stage.extra_study_lines = more
    with tempfile.TemporaryDirectory(prefix="fedclust-") as folder:
        stage.prepare(Path(folder))
        play = FaultRun(stage, Path(folder))
        try:
            yield play
        finally:
            play.close()


# ---- faults, each with its expected outcome


def check_same_bits(play: FaultRun, expected: Any, process: Any) -> str:
    code = play.wait_for_exit(process)
    if code != 0:
        raise UnexpectedOutcome(f"exit code {code}: {play.last_log_line()}")
    if play.read_model() != expected:
        raise UnexpectedOutcome("the bits differ")
    return "same bits"


def check_refusal(play: FaultRun, process: Any, *words: str) -> str:
    """Check for a refusal in one sentence that contains these words."""
    code = play.wait_for_exit(process)
    said = play.last_log_line()
    if code not in (1, 2) or not all(word in said for word in words):
        raise UnexpectedOutcome(f"exit code {code}: {said}")
    sentence = re.sub(r" \([^()]*fedclust [^()]*\)$", "", said.removeprefix("fedclust: "))
    return f"refused: {sentence}"


def killed_in_a_step(play: FaultRun, expected: Any) -> str:
    """A site's process is killed (kill -9) in the middle of a step, and started again."""
    flag = play.folder / "flag"
    sites, process = play.start_sites(hang_once(flag)), play.start_coordinator()
    play.wait_until(flag.exists)
    kill(sites[VICTIM])
    play.start_site(VICTIM)
    return check_same_bits(play, expected, process)


def gone_for_good(play: FaultRun, expected: Any) -> str:
    """A site's process is killed and never comes back."""
    flag = play.folder / "flag"
    sites, process = play.start_sites(hang_once(flag)), play.start_coordinator(timeout=play.setup.short_timeout)
    play.wait_until(flag.exists)
    kill(sites[VICTIM])
    return check_refusal(play, process, VICTIM, "no answer")


def restarted_between(play: FaultRun, expected: Any) -> str:
    """A site gets SIGTERM between steps, and is started again after the coordinator gave up."""
    flag = play.folder / "flag"
    sites, process = play.start_sites(hang_once(flag)), play.start_coordinator(timeout=play.setup.short_timeout)
    play.wait_until(flag.exists)
    kill(sites[VICTIM], signal.SIGTERM)
    refused = check_refusal(play, process, VICTIM)
    play.start_site(VICTIM)
    return f"{refused}; then resumed: {check_same_bits(play, expected, play.start_coordinator())}"


def coordinator_killed(play: FaultRun, expected: Any) -> str:
    """The coordinator is killed (kill -9) after every record of its journal, and resumed each time.

    If a start takes long, the coordinator writes a few records between two kills.
    """
    play.start_sites()
    deaths, few = 0, play.setup.records_per_life
    while True:
        process = play.start_coordinator(patch=die_after_writes(few))
        if play.wait_for_exit(process) == -signal.SIGKILL:
            deaths += 1
            continue
        every = "" if few == 1 else f", at records {few}, {2 * few}, {3 * few}..."
        return f"{check_same_bits(play, expected, process)} after {deaths} kills{every}"


def stopped_past_the_deadline(play: FaultRun, expected: Any) -> str:
    """SIGSTOP of a site past the deadline, SIGCONT after the coordinator gave up."""
    flag = play.folder / "flag"
    sites, process = play.start_sites(hang_once(flag)), play.start_coordinator(timeout=play.setup.short_timeout)
    play.wait_until(flag.exists)
    signal_tree(sites[VICTIM], signal.SIGSTOP)
    refused = check_refusal(play, process, VICTIM, "no answer")
    signal_tree(sites[VICTIM], signal.SIGCONT)
    kill(sites[VICTIM])  # it would keep sleeping; what matters is that it was stopped when it was asked
    play.start_site(VICTIM)
    return f"{refused}; then resumed: {check_same_bits(play, expected, play.start_coordinator())}"


def woken_past_the_deadline(play: FaultRun, expected: Any) -> str:
    """SIGSTOP of a site past the deadline; after SIGCONT the same process answers late, and the run continues."""
    flag, soon = play.folder / "flag", play.setup.short_timeout
    sites, process = play.start_sites(hang_once(flag, seconds=soon)), play.start_coordinator(timeout=soon)
    play.wait_until(flag.exists)
    signal_tree(sites[VICTIM], signal.SIGSTOP)
    refused = check_refusal(play, process, VICTIM, "no answer")
    signal_tree(sites[VICTIM], signal.SIGCONT)
    return f"{refused}; then continued and resumed: {check_same_bits(play, expected, play.start_coordinator())}"


def gone_where_two_are_enough(play: FaultRun, expected: Any) -> str:
    """A site's process is killed and never comes back, in a study that needs only two sites."""
    flag = play.folder / "flag"
    sites, process = play.start_sites(hang_once(flag)), play.start_coordinator()
    play.wait_until(flag.exists)
    kill(sites[VICTIM])
    kill(process)  # it waits for the site; the next one has a short deadline
    play.wait_for_exit(process)
    said = check_same_bits(
        play,
        expected_model(play.setup.extra_study_lines, leave_out_victim),
        play.start_coordinator(timeout=play.setup.short_timeout),
    )
    (note,) = [note for note in play.read_analysis()["notes"] if VICTIM in note]
    return f"{said} as a run in one process that leaves out the site from that step on; the note says: {note}"


def refuses_and_is_fixed(play: FaultRun, expected: Any) -> str:
    """A site refuses in the middle of the run; it is fixed and started again, and the run is resumed."""
    sites, process = play.start_sites(refuse_from_fault_step), play.start_coordinator()
    refused = check_refusal(play, process, VICTIM, "its data cannot be used")
    kill(sites[VICTIM])
    play.start_site(VICTIM)
    return f"{refused}; then resumed: {check_same_bits(play, expected, play.start_coordinator())}"


def link_cut_and_healed(play: FaultRun, expected: Any) -> str:
    """A site cannot be reached for a while; its answer becomes ready during that time and cannot leave."""
    flag, soon = play.folder / "flag", play.setup.short_timeout
    play.start_sites(hang_once(flag, seconds=soon))
    process = play.start_coordinator()
    play.wait_until(flag.exists)
    play.setup.cut_link(VICTIM)
    time.sleep(2 * soon)
    play.setup.restore_link(VICTIM)
    return check_same_bits(play, expected, process)


def make_lying_fault(
    change: Callable[[SealedAnswer], SealedAnswer], *words: str, handler_name: str = "row_split.moments"
) -> Callable[[FaultRun, Any], str]:
    """A site that answers one question falsely; a reply that is no answer counts as silence until the deadline."""

    def enact(play: FaultRun, expected: Any) -> str:
        play.start_sites(lie_about(change, handler_name))
        patch = None if play.setup.has_site_processes else lie_about(change, handler_name)
        timeout = play.setup.short_timeout if change is shift_step else LONG_TIMEOUT
        return check_refusal(play, play.start_coordinator(timeout=timeout, patch=patch), VICTIM, *words)

    return enact


def disk_full(play: FaultRun, expected: Any) -> str:
    """The coordinator's disk is full in the middle of the run; space is freed, and the run is resumed."""
    play.start_sites()
    refused = check_refusal(play, play.start_coordinator(patch=fill_disk_after(12)), "the disk is full")
    return f"{refused}; then resumed: {check_same_bits(play, expected, play.start_coordinator())}"


FAULTS: dict[str, Callable[[FaultRun, Any], str]] = {
    "a site is killed (kill -9) during a step and started again": killed_in_a_step,
    "a site is killed and never comes back": gone_for_good,
    "a site is stopped (SIGTERM) and started again after the deadline": restarted_between,
    "the coordinator is killed (kill -9) after every record of its journal": coordinator_killed,
    "a site is paused (SIGSTOP) and replaced after the deadline": stopped_past_the_deadline,
    "a site is paused (SIGSTOP) and continues after the deadline (SIGCONT)": woken_past_the_deadline,
    "a site is killed and never comes back; two sites are enough": gone_where_two_are_enough,
    "a site refuses, is fixed, and the run is resumed": refuses_and_is_fixed,
    "the connection to a site is cut and restored": link_cut_and_healed,
    "a site sends NaN": make_lying_fault(replace_by_nan, "not finite", handler_name="initial_centers.seed_candidates"),
    "a site sends an answer of the wrong shape": make_lying_fault(
        change_sum("mass", drop_last_number), "differs in shape"
    ),
    "a site sends a sum of 1e12": make_lying_fault(change_sum("pull", replace_by_huge), "is invalid"),
    "a site sends the answer to another step": make_lying_fault(shift_step, "no answer"),
    "the coordinator's disk is full": disk_full,
}
# extra lines in the study of a fault
EXTRA_STUDY_LINES = {
    "a site is killed and never comes back; two sites are enough": "quorum = 2\n",
    # Sites answer this start with floats, and all other questions with integers.
    "a site sends NaN": 'init = "careful"\n',
}
SINGLE_PROCESS_FAULTS = (
    "the coordinator is killed",
    "a site sends",
    "the coordinator's disk",
)  # these also apply to a run in one process


def expected_model(more: str = "", patch: Patch | None = None) -> Any:
    """The model of a run in one process without a fault, except for the patch."""
    with open_fault_run(SETUPS["local"](), more) as play:
        if play.wait_for_exit(play.start_coordinator(patch=patch)) != 0:
            raise UnexpectedOutcome(play.last_log_line())
        return play.read_model()


def enact_fault(name: str, fault: str, expected: Any) -> str:
    """Apply one fault on one engine and return the outcome; raises `UnexpectedOutcome` if it is not allowed."""
    with open_fault_run(SETUPS[name](), EXTRA_STUDY_LINES.get(fault, "")) as play:
        return FAULTS[fault](play, expected)


def fault_applies(name: str, fault: str) -> bool:
    return SETUPS[name]().has_site_processes or fault.startswith(SINGLE_PROCESS_FAULTS)


def main(names: list[str]) -> int:
    """Print the table of outcomes."""
    load_command()  # imported once, before processes are forked
    expected, failed = expected_model(), 0
    say = sys.stdout.write
    say("| engine | fault | outcome | seconds |\n|---|---|---|---|\n")
    for name in names or list(SETUPS):
        for fault in FAULTS:
            if not fault_applies(name, fault):
                continue
            began = time.monotonic()
            try:
                came = enact_fault(name, fault, expected)
            except UnexpectedOutcome as error:
                came, failed = f"**NOT ALLOWED**: {error}", failed + 1
            say(f"| {name} | {fault} | {came} | {time.monotonic() - began:.1f} |\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
