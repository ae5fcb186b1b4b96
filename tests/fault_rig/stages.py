"""Each engine setup prepares a federation of real processes on this machine and gives the commands to start them.

The module `faults` decides which process is killed, stopped or started, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from fedclust.site.site_file import make_key, read_public_key

SHORT_TIMEOUT, LONG_TIMEOUT = 4.0, 60.0  # seconds: a deadline that should be missed, and one that should not
SITE_NAMES = ("north", "south", "west")
FAULT_STUDY = """\
name = "faults"
columns = ["age", "bp"]
scale = "standardise"
[cluster]
method = "fuzzy-c-means"
k = 2
max_iter = 3
tol = "none"
"""


class EngineSetup(Protocol):
    """One engine's way to set up a coordinator and three sites."""

    name: str
    has_site_processes: bool  # whether sites are separate processes
    short_timeout: float  # a deadline that should be missed
    max_run_seconds: float  # time limit of a run with its fault, in seconds
    records_per_life: int  # that a coordinator writes between two kills
    extra_study_lines: str  # additional lines of the study's [cluster]

    def prepare(self, folder: Path) -> None:
        """Make keys, files and folders for a new federation."""

    def begin_words(self, *, timeout: float) -> list[str]:
        """The coordinator's arguments after `fedclust` to start the run; the run folder is `run`."""

    def resume_words(self, *, timeout: float) -> list[str]:
        """The coordinator's arguments to resume the run."""

    def serve_words(self, party: str) -> list[str]:
        """A site's arguments, to serve until it hears that the run is over."""

    def cut_link(self, party: str) -> None:
        """Cut a site off."""

    def restore_link(self, party: str) -> None:
        """Connect the site again."""

    def close(self) -> None:
        """Clean up after all processes have ended."""


def write_tables(folder: Path, more: str = "") -> None:
    """Write each site's rows, and the study for one process that gives the expected result."""
    sites = ""
    for number, party in enumerate(SITE_NAMES):
        (folder / party).mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        rows = rng.normal(rng.choice([0.0, 6.0], (40, 1)), 1.0, (40, 2))
        np.savetxt(folder / party / "rows.csv", rows, delimiter=",", header="age,bp", comments="")
        sites += f'[sites.{party}]\nsource = "{party}/rows.csv"\n'
    (folder / "pooled.toml").write_text(FAULT_STUDY + more + sites)


class Local:
    """All parties in one process: it can only be killed, get false answers or have a full disk."""

    name = "local"
    has_site_processes = False
    short_timeout, max_run_seconds, records_per_life, extra_study_lines = SHORT_TIMEOUT, 2 * LONG_TIMEOUT, 1, ""

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        write_tables(folder, self.extra_study_lines)

    def begin_words(self, *, timeout: float) -> list[str]:  # noqa: ARG002
        return ["run", str(self.folder / "pooled.toml"), "--out", str(self.folder / "run"), "--quiet"]

    def resume_words(self, *, timeout: float) -> list[str]:  # noqa: ARG002
        return ["resume", str(self.folder / "run"), "--quiet"]

    def serve_words(self, party: str) -> list[str]:
        raise NotImplementedError(party)

    def cut_link(self, party: str) -> None:
        raise NotImplementedError(party)

    def restore_link(self, party: str) -> None:
        raise NotImplementedError(party)

    def close(self) -> None:
        """There is nothing to clean up."""


class Files:
    """Folders that the coordinator and the sites share."""

    name = "files"
    has_site_processes = True
    short_timeout, max_run_seconds, records_per_life, extra_study_lines = SHORT_TIMEOUT, 2 * LONG_TIMEOUT, 1, ""

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        write_tables(folder, self.extra_study_lines)
        for one in ("coordinator", *SITE_NAMES):
            (folder / one).mkdir(exist_ok=True)
            make_key(folder / one / "own.key")
        keys = {one: read_public_key(folder / one / "own.key.pub").hex() for one in ("coordinator", *SITE_NAMES)}
        roster = "".join(f'{party} = "{keys[party]}"\n' for party in SITE_NAMES)
        (folder / "own.toml").write_text(
            f'identity = "coordinator/own.key"\n[roster]\n{roster}[engine]\nfolder = "mail"\npoll = 0.02\n'
        )
        (folder / "study.toml").write_text(
            FAULT_STUDY + self.extra_study_lines + "".join(f"[sites.{party}]\n" for party in SITE_NAMES)
        )
        for party in SITE_NAMES:
            (folder / party / "site.toml").write_text(
                f'name = "{party}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
                f'coordinator = "{keys["coordinator"]}"\n[policy]\nprofile = "none"\n[roster]\n{roster}'
            )
            for way in ("to", "from"):
                (folder / "mail" / way / party).mkdir(parents=True)

    def begin_words(self, *, timeout: float) -> list[str]:
        words = ["coordinate", str(self.folder / "study.toml"), "--engine", "files"]
        words += ["--own", str(self.folder / "own.toml"), "--out", str(self.folder / "run")]
        return [*words, "--wait", "--timeout", str(timeout), "--quiet"]

    def resume_words(self, *, timeout: float) -> list[str]:
        return ["resume", str(self.folder / "run"), "--wait", "--timeout", str(timeout), "--quiet"]

    def serve_words(self, party: str) -> list[str]:
        boxes = [str(self.folder / "mail" / way / party) for way in ("to", "from")]
        own = str(self.folder / party / "site.toml")
        return ["site", "answer", *boxes, "--site", own, "--wait", "--poll", "0.02", "--json"]

    def cut_link(self, party: str) -> None:
        (self.folder / "mail" / "from" / party).rename(self.folder / f"cut-{party}")

    def restore_link(self, party: str) -> None:
        there = self.folder / "mail" / "from" / party
        there.mkdir(exist_ok=True)
        for path in (self.folder / f"cut-{party}").iterdir():
            path.replace(there / path.name)
        (self.folder / f"cut-{party}").rmdir()

    def close(self) -> None:
        """The caller removes the folders."""


SETUPS: dict[str, Callable[[], EngineSetup]] = {"local": Local, "files": Files}
if find_spec("nvflare") is not None:
    SETUPS["nvflare"] = lambda: import_module("fault_rig.stages_nvflare").Nvflare()
