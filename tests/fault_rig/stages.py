"""Federations of real processes on this machine, one way of setting them up for each engine.

A stage says with which words the command is called; who is killed, stopped and started when is `faults`' business.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from fedclust.site.site_file import new_key, public_key

SOON, LONG = 4.0, 60.0  # seconds: a deadline that is meant to pass, and one that is not
NAMES = ("north", "south", "west")
STUDY = """\
name = "faults"
columns = ["age", "bp"]
scale = "standardise"
[cluster]
method = "fuzzy-c-means"
k = 2
max_iter = 3
tol = "none"
"""


class Stage(Protocol):
    """One engine's way to set up a coordinator and three sites."""

    name: str
    serves: bool  # whether sites are processes of their own
    soon: float  # a deadline that is meant to pass
    longest: float  # seconds that a run may take, with whatever happens to it
    records: int  # that a coordinator writes between two of its deaths
    more: str  # lines of the study's [cluster] besides the usual

    def prepare(self, folder: Path) -> None:
        """Keys, files and folders for a new federation."""

    def begin(self, *, timeout: float) -> list[str]:
        """The coordinator's words to begin, after `fedclust`; the run folder is `run`."""

    def resume(self, *, timeout: float) -> list[str]:
        """Its words to go on."""

    def serve(self, party: str) -> list[str]:
        """A site's words, to serve until it is told that the run is over."""

    def cut(self, party: str) -> None:
        """Cut a site off."""

    def heal(self, party: str) -> None:
        """Let it be reached again."""

    def close(self) -> None:
        """All processes are gone."""


def tables(folder: Path, more: str = "") -> None:
    """Each site's rows, and the study for one process, against which the others are held."""
    sites = ""
    for number, party in enumerate(NAMES):
        (folder / party).mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        rows = rng.normal(rng.choice([0.0, 6.0], (40, 1)), 1.0, (40, 2))
        np.savetxt(folder / party / "rows.csv", rows, delimiter=",", header="age,bp", comments="")
        sites += f'[sites.{party}]\nsource = "{party}/rows.csv"\n'
    (folder / "pooled.toml").write_text(STUDY + more + sites)


class Local:
    """All in one process: only the process itself can die, and its disk be full."""

    name = "local"
    serves = False
    soon, longest, records, more = SOON, 2 * LONG, 1, ""

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        tables(folder, self.more)

    def begin(self, *, timeout: float) -> list[str]:  # noqa: ARG002
        return ["run", str(self.folder / "pooled.toml"), "--out", str(self.folder / "run"), "--quiet"]

    def resume(self, *, timeout: float) -> list[str]:  # noqa: ARG002
        return ["resume", str(self.folder / "run"), "--quiet"]

    def serve(self, party: str) -> list[str]:
        raise NotImplementedError(party)

    def cut(self, party: str) -> None:
        raise NotImplementedError(party)

    def heal(self, party: str) -> None:
        raise NotImplementedError(party)

    def close(self) -> None:
        """Nothing is left."""


class Files:
    """Folders that the coordinator and the sites share."""

    name = "files"
    serves = True
    soon, longest, records, more = SOON, 2 * LONG, 1, ""

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        tables(folder, self.more)
        for one in ("coordinator", *NAMES):
            (folder / one).mkdir(exist_ok=True)
            new_key(folder / one / "own.key")
        keys = {one: public_key(folder / one / "own.key.pub").hex() for one in ("coordinator", *NAMES)}
        roster = "".join(f'{party} = "{keys[party]}"\n' for party in NAMES)
        (folder / "own.toml").write_text(
            f'identity = "coordinator/own.key"\n[roster]\n{roster}[engine]\nfolder = "mail"\npoll = 0.02\n'
        )
        (folder / "study.toml").write_text(STUDY + self.more + "".join(f"[sites.{party}]\n" for party in NAMES))
        for party in NAMES:
            (folder / party / "site.toml").write_text(
                f'name = "{party}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
                f'coordinator = "{keys["coordinator"]}"\n[policy]\nprofile = "none"\n[roster]\n{roster}'
            )
            for way in ("to", "from"):
                (folder / "mail" / way / party).mkdir(parents=True)

    def begin(self, *, timeout: float) -> list[str]:
        words = ["coordinate", str(self.folder / "study.toml"), "--engine", "files"]
        words += ["--own", str(self.folder / "own.toml"), "--out", str(self.folder / "run")]
        return [*words, "--wait", "--timeout", str(timeout), "--quiet"]

    def resume(self, *, timeout: float) -> list[str]:
        return ["resume", str(self.folder / "run"), "--wait", "--timeout", str(timeout), "--quiet"]

    def serve(self, party: str) -> list[str]:
        boxes = [str(self.folder / "mail" / way / party) for way in ("to", "from")]
        own = str(self.folder / party / "site.toml")
        return ["site", "answer", *boxes, "--site", own, "--wait", "--poll", "0.02", "--json"]

    def cut(self, party: str) -> None:
        (self.folder / "mail" / "from" / party).rename(self.folder / f"cut-{party}")

    def heal(self, party: str) -> None:
        there = self.folder / "mail" / "from" / party
        there.mkdir(exist_ok=True)
        for path in (self.folder / f"cut-{party}").iterdir():
            path.replace(there / path.name)
        (self.folder / f"cut-{party}").rmdir()

    def close(self) -> None:
        """Folders go with the rest."""


STAGES: dict[str, Callable[[], Stage]] = {"local": Local, "files": Files}
if find_spec("nvflare") is not None:
    STAGES["nvflare"] = lambda: import_module("fault_rig.stages_nvflare").Nvflare()
