"""What goes wrong with real processes, done on purpose: each fault ends in the right bits, or in a refusal with a name.

`python -m fault_rig.faults` enacts every fault on every engine and prints the table.
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
    absent,
    another_step,
    changed,
    cut_short,
    dying,
    far_out,
    hanging,
    lying,
    not_numbers,
    refusing,
    short_of_room,
)
from fault_rig.stages import LONG, NAMES, STAGES, Stage
from fedclust.core.envelope import Sealed

GONE = 5.0  # seconds within which a killed process is gone
FORK = multiprocessing.get_context("fork")  # the command's imports are paid for once


class Unexpected(AssertionError):
    """A fault ended in something else than it may."""


def command() -> Callable[[list[str]], int]:
    """The command itself, found by name: it sits on top of everything, this module included."""
    for name in ("app.execute", "app.serve"):
        importlib.import_module(f"fedclust.{name}")
    main: Callable[[list[str]], int] = importlib.import_module("fedclust.cli.main").main
    return main


def _child(words: list[str], out: Path, patch: Patch | None) -> None:
    os.setsid()
    file = out.open("a", buffering=1)  # open for as long as the process lives
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = file  # whoever forked it may have put something else there
    if patch is not None:
        patch()
    code = command()(words)
    sys.stdout.flush()
    os._exit(code)


@dataclass
class Play:
    """One federation, and the processes that enact it."""

    stage: Stage
    folder: Path
    _alive: list[Any] = field(default_factory=list)

    def start(self, words: list[str], name: str, patch: Patch | None = None) -> Any:
        process = FORK.Process(target=_child, args=(words, self.folder / f"{name}.log", patch))
        process.start()
        self._alive.append(process)
        return process

    def coordinator(self, *, timeout: float = LONG, patch: Patch | None = None) -> Any:
        begun = (self.folder / "run" / "origin.json").exists()
        words = self.stage.resume(timeout=timeout) if begun else self.stage.begin(timeout=timeout)
        return self.start(words, "coordinator", patch)

    def site(self, party: str, patch: Patch | None = None) -> Any:
        return self.start(self.stage.serve(party), party, patch)

    def sites(self, patch: Patch | None = None) -> dict[str, Any]:
        """All sites, the victim under a patch; none where they are not processes of their own."""
        if not self.stage.serves:
            return {}
        return {party: self.site(party, patch if party == VICTIM else None) for party in NAMES}

    def finished(self, process: Any) -> int:
        """How a process ended."""
        process.join(self.stage.longest)
        if process.exitcode is None:
            raise Unexpected(f"a process is still at work after {self.stage.longest} s: {self.said()}")
        return int(process.exitcode)

    def said(self, name: str = "coordinator") -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace").strip().rpartition("\n")[2] if path.exists() else ""

    def outcome(self) -> Any:
        return json.loads((self.folder / "run" / "model.json").read_text())

    def analysis(self) -> Any:
        return json.loads((self.folder / "run" / "analysis.json").read_text())

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something to be so."""
        end = time.monotonic() + self.stage.longest
        while not what():
            if time.monotonic() > end:
                raise Unexpected(f"what was waited for did not happen: {self.said()}")
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._alive:
            signalled(process, signal.SIGCONT)
            kill(process)
        self.stage.close()


def kill(process: Any, how: signal.Signals = signal.SIGKILL) -> None:
    """A signal to a process; what it started must end with it. Who is killed outright is gone on return."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)
    if how is signal.SIGKILL:
        process.join(GONE)


def signalled(process: Any, how: signal.Signals) -> None:
    """A signal to a process and to all that it started."""
    for pid in (process.pid, *below(process.pid)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)


def below(pid: int) -> list[int]:
    """The processes that a process started, and those started by them."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(path.parent.name), *below(int(path.parent.name))]
    return found


@contextmanager
def enacted(stage: Stage, more: str = "") -> Iterator[Play]:
    stage.more = more
    with tempfile.TemporaryDirectory(prefix="fedclust-") as folder:
        stage.prepare(Path(folder))
        play = Play(stage, Path(folder))
        try:
            yield play
        finally:
            play.close()


# ---- faults: what happens, and what must come of it


def ends_well(play: Play, expected: Any, process: Any) -> str:
    code = play.finished(process)
    if code != 0:
        raise Unexpected(f"exit code {code}: {play.said()}")
    if play.outcome() != expected:
        raise Unexpected("OTHER BITS")
    return "same bits"


def ends_in_refusal(play: Play, process: Any, *words: str) -> str:
    """A refusal in one sentence that says these words."""
    code = play.finished(process)
    said = play.said()
    if code not in (1, 2) or not all(word in said for word in words):
        raise Unexpected(f"exit code {code}: {said}")
    sentence, *_ = re.split(r" \((?:once mended|then: |stopped)", said.removeprefix("fedclust: "))
    return f"refused: {sentence}"


def killed_in_a_step(play: Play, expected: Any) -> str:
    """A site's process is killed (kill -9) in the middle of a step, and started again."""
    flag = play.folder / "flag"
    sites, process = play.sites(hanging(flag)), play.coordinator()
    play.until(flag.exists)
    kill(sites[VICTIM])
    play.site(VICTIM)
    return ends_well(play, expected, process)


def gone_for_good(play: Play, expected: Any) -> str:
    """A site's process is killed and never comes back."""
    flag = play.folder / "flag"
    sites, process = play.sites(hanging(flag)), play.coordinator(timeout=play.stage.soon)
    play.until(flag.exists)
    kill(sites[VICTIM])
    return ends_in_refusal(play, process, VICTIM, "no answer")


def restarted_between(play: Play, expected: Any) -> str:
    """A site is asked to stop between steps, and started again after the coordinator gave up."""
    flag = play.folder / "flag"
    sites, process = play.sites(hanging(flag)), play.coordinator(timeout=play.stage.soon)
    play.until(flag.exists)
    kill(sites[VICTIM], signal.SIGTERM)
    refused = ends_in_refusal(play, process, VICTIM)
    play.site(VICTIM)
    return f"{refused}; then resumed: {ends_well(play, expected, play.coordinator())}"


def coordinator_killed(play: Play, expected: Any) -> str:
    """The coordinator is killed (kill -9) after every record of its journal, and resumed each time.

    Where to begin anew takes long, it lives for a few records between two deaths.
    """
    play.sites()
    deaths, few = 0, play.stage.records
    while True:
        process = play.coordinator(patch=dying(few))
        if play.finished(process) == -signal.SIGKILL:
            deaths += 1
            continue
        every = "" if few == 1 else f", one at every record of number {few}, {2 * few}, {3 * few}..."
        return f"{ends_well(play, expected, process)} after {deaths} deaths{every}"


def stopped_past_the_deadline(play: Play, expected: Any) -> str:
    """SIGSTOP of a site past the deadline, SIGCONT after the coordinator gave up."""
    flag = play.folder / "flag"
    sites, process = play.sites(hanging(flag)), play.coordinator(timeout=play.stage.soon)
    play.until(flag.exists)
    signalled(sites[VICTIM], signal.SIGSTOP)
    refused = ends_in_refusal(play, process, VICTIM, "no answer")
    signalled(sites[VICTIM], signal.SIGCONT)
    kill(sites[VICTIM])  # it would sleep on; what matters is that it lay still when it was asked
    play.site(VICTIM)
    return f"{refused}; then resumed: {ends_well(play, expected, play.coordinator())}"


def woken_past_the_deadline(play: Play, expected: Any) -> str:
    """SIGSTOP of a site past the deadline; woken by SIGCONT, the very process answers late, and the run goes on."""
    flag, soon = play.folder / "flag", play.stage.soon
    sites, process = play.sites(hanging(flag, seconds=soon)), play.coordinator(timeout=soon)
    play.until(flag.exists)
    signalled(sites[VICTIM], signal.SIGSTOP)
    refused = ends_in_refusal(play, process, VICTIM, "no answer")
    signalled(sites[VICTIM], signal.SIGCONT)
    return f"{refused}; then woken and resumed: {ends_well(play, expected, play.coordinator())}"


def gone_where_two_are_enough(play: Play, expected: Any) -> str:
    """A site's process is killed and never comes back, in a study that two sites are enough for."""
    flag = play.folder / "flag"
    sites, process = play.sites(hanging(flag)), play.coordinator()
    play.until(flag.exists)
    kill(sites[VICTIM])
    kill(process)  # which waits for it; the next one does not for long
    play.finished(process)
    said = ends_well(play, expected_of(play.stage.more, absent), play.coordinator(timeout=play.stage.soon))
    (note,) = [note for note in play.analysis()["notes"] if VICTIM in note]
    return f"{said} as in one process without it from that step on; noted: {note}"


def refuses_and_is_mended(play: Play, expected: Any) -> str:
    """A site refuses in the middle of the run; it is mended and started again, and the run resumed."""
    sites, process = play.sites(refusing), play.coordinator()
    refused = ends_in_refusal(play, process, VICTIM, "its data cannot be used")
    kill(sites[VICTIM])
    play.site(VICTIM)
    return f"{refused}; then resumed: {ends_well(play, expected, play.coordinator())}"


def link_cut_and_healed(play: Play, expected: Any) -> str:
    """A site cannot be reached for a while; its answer is ready meanwhile, and finds no way out."""
    flag, soon = play.folder / "flag", play.stage.soon
    play.sites(hanging(flag, seconds=soon))
    process = play.coordinator()
    play.until(flag.exists)
    play.stage.cut(VICTIM)
    time.sleep(2 * soon)
    play.stage.heal(VICTIM)
    return ends_well(play, expected, process)


def lies(how: Callable[[Sealed], Sealed], *words: str, about: str = "row_split.moments") -> Callable[[Play, Any], str]:
    """A site that answers one question falsely; what is no answer at all is waited for until the deadline."""

    def enact(play: Play, expected: Any) -> str:
        play.sites(lying(how, about))
        patch = None if play.stage.serves else lying(how, about)
        timeout = play.stage.soon if how is another_step else LONG
        return ends_in_refusal(play, play.coordinator(timeout=timeout, patch=patch), VICTIM, *words)

    return enact


def disk_full(play: Play, expected: Any) -> str:
    """The coordinator's disk is full in the middle of the run; room is made, and the run resumed."""
    play.sites()
    refused = ends_in_refusal(play, play.coordinator(patch=short_of_room(12)), "no room")
    return f"{refused}; then resumed: {ends_well(play, expected, play.coordinator())}"


FAULTS: dict[str, Callable[[Play, Any], str]] = {
    "kill -9 a site in a step, start it again": killed_in_a_step,
    "a site gone for good": gone_for_good,
    "a site stopped, and started after the deadline": restarted_between,
    "kill -9 the coordinator at every record": coordinator_killed,
    "SIGSTOP a site past the deadline": stopped_past_the_deadline,
    "SIGSTOP a site past the deadline, then SIGCONT": woken_past_the_deadline,
    "a site gone for good, two are enough": gone_where_two_are_enough,
    "a site refuses, is fixed, and the run is resumed": refuses_and_is_mended,
    "link cut and healed": link_cut_and_healed,
    "a site answers NaN": lies(not_numbers, "not finite", about="initial_centers.seeds"),
    "a site answers a wrong shape": lies(changed("mass", cut_short), "another shape"),
    "a site answers 1e12": lies(changed("pull", far_out), "cannot be true"),
    "a site answers another step": lies(another_step, "no answer"),
    "the coordinator's disk is full": disk_full,
}
MORE = {"a site gone for good, two are enough": "quorum = 2\n"}  # what the study of a fault says besides
ALONE = ("kill -9 the coordinator", "a site answers", "the coordinator's disk")  # make sense in one process, too


def expected_of(more: str = "", patch: Patch | None = None) -> Any:
    """The model of a run in one process, to which nothing happens but a patch."""
    with enacted(STAGES["local"](), more) as play:
        if play.finished(play.coordinator(patch=patch)) != 0:
            raise Unexpected(play.said())
        return play.outcome()


def enact(name: str, fault: str, expected: Any) -> str:
    """One fault on one engine: what came of it. Raises `Unexpected` if that is not what may come of it."""
    with enacted(STAGES[name](), MORE.get(fault, "")) as play:
        return FAULTS[fault](play, expected)


def applies(name: str, fault: str) -> bool:
    return STAGES[name]().serves or fault.startswith(ALONE)


def main(names: list[str]) -> int:
    """The table, on stdout."""
    command()  # imported once, before processes are forked
    expected, failed = expected_of(), 0
    say = sys.stdout.write
    say("| engine | fault | outcome | s |\n|---|---|---|---|\n")
    for name in names or list(STAGES):
        for fault in FAULTS:
            if not applies(name, fault):
                continue
            began = time.monotonic()
            try:
                came = enact(name, fault, expected)
            except Unexpected as error:
                came, failed = f"**NOT AS IT MUST BE**: {error}", failed + 1
            say(f"| {name} | {fault} | {came} | {time.monotonic() - began:.1f} |\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
