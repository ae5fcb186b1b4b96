"""Three sites and a coordinator that exchange nothing but files, each in a folder of its own."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedclust.app.blind_lead import BlindLead
from fedclust.app.coordinate import RunOptions
from fedclust.app.execute import begin_run, resume_run
from fedclust.app.run_folder import EngineChoice
from fedclust.app.serve import open_session
from fedclust.app.study import read_study
from fedclust.core.errors import Waiting
from fedclust.engines.files.files_site import FileTransport
from fedclust.site.site_file import make_key, read_public_key, read_site_file

NAMES = ("north", "south", "west")
STUDY = """\
name = "heart"
columns = ["age", "bp"]
scale = "standardise"
[cluster]
method = "fuzzy-c-means"
k = {k}
{more}
[privacy]
aggregation = "{mode}"
[sites.north]
[sites.south]
[sites.west]
"""


def rows(seed, count=40):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, 2))


@dataclass
class ByFiles:
    """A coordinator's folder and three sites' folders, all under one."""

    folder: Path

    @classmethod
    def made(cls, folder, *, k='"2..4"', more="", mode="plain", policy="none"):
        for name in ("coordinator", *NAMES):
            (folder / name).mkdir(parents=True)
            make_key(folder / name / "own.key")
        keys = {name: read_public_key(folder / name / "own.key.pub").hex() for name in ("coordinator", *NAMES)}
        roster = "".join(f'{name} = "{keys[name]}"\n' for name in NAMES)
        (folder / "coordinator" / "own.toml").write_text(
            f'identity = "own.key"\n[roster]\n{roster}[engine]\nfolder = "mail"\npoll = 0.01\n'
        )
        (folder / "coordinator" / "study.toml").write_text(STUDY.format(k=k, more=more, mode=mode))
        for number, name in enumerate(NAMES):
            np.savetxt(folder / name / "rows.csv", rows(number), delimiter=",", header="age,bp", comments="")
            (folder / name / "site.toml").write_text(
                f'name = "{name}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
                f'coordinator = "{keys["coordinator"]}"\n[policy]\nprofile = "{policy}"\n[roster]\n{roster}'
            )
            for box in ("inbox", "outbox"):
                (folder / name / box).mkdir()
        return cls(folder)

    def pooled_study(self):
        """The same study for one process."""
        text = (self.folder / "coordinator" / "study.toml").read_text()
        for name in NAMES:
            text = text.replace(f"[sites.{name}]", f'[sites.{name}]\nsource = "{self.folder / name / "rows.csv"}"')
        return text

    @property
    def own(self):
        return self.folder / "coordinator" / "own.toml"

    @property
    def mail(self):
        return self.folder / "coordinator" / "mail"

    def carry(self, only=NAMES, *, back=True):
        """What a person with a stick does."""
        for name in only:
            self._copy(self.mail / "to" / name, self.folder / name / "inbox")
            if back:
                self._copy(self.folder / name / "outbox", self.mail / "from" / name)

    def _copy(self, here, there):
        for path in here.glob("*.message") if here.is_dir() else ():
            shutil.copy(path, there / path.name)

    def share(self):
        """Let the coordinator and each site have their folders in common; nobody carries anything."""
        for name in NAMES:
            for ours, theirs in (("to", "inbox"), ("from", "outbox")):
                (self.mail / ours).mkdir(parents=True, exist_ok=True)
                shutil.rmtree(self.mail / ours / name, ignore_errors=True)
                (self.mail / ours / name).symlink_to(self.folder / name / theirs)
        self.carry = lambda *_, **__: None

    def answer(self, name):
        """One look of a site into its inbox."""
        site = read_site_file(self.folder / name / "site.toml")
        with open_session(site, study=self.folder / "coordinator" / "study.toml") as door:
            boxes = self.folder / name / "inbox", self.folder / name / "outbox"
            room = FileTransport.for_site(door, site, *boxes)
            turn = room.answer_inbox()
            for run in room.runs:
                BlindLead(door, site, *boxes, self.folder / name / "led").resume_script(run)
            return turn

    def around(self):
        """One whole trip of the stick."""
        self.carry(back=False)
        for name in NAMES:
            self.answer(name)
        self.carry()

    def until_done(self, go_on, most=400):
        """Go on, trip after trip, until there is a model."""
        for trips in range(most):
            try:
                return go_on(), trips
            except Waiting:
                self.around()
        raise AssertionError("it never ends")


def begun(fed):
    """A run by files, and how to go on with it."""
    study = read_study(fed.folder / "coordinator" / "study.toml", served=True)
    run = begin_run(study, fed.folder / "run", engine_choice=EngineChoice("files", fed.own))
    return run, lambda **options: resume_run(run, RunOptions(**options))


def outcome(folder):
    """What must be the same bits, whatever carried the messages."""
    model = json.loads((folder / "model.json").read_text())
    found = json.loads((folder / "analysis.json").read_text())
    return {"model": model, "selection": found["selection"], "profiles": found["profiles"], "indices": found["indices"]}


def in_process(fed):
    """What the same study comes to in one process."""
    path = fed.folder / "pooled.toml"
    path.write_text(fed.pooled_study())
    run = begin_run(read_study(path), fed.folder / "local", origin=fed.folder)
    resume_run(run)
    return outcome(run.folder)


def waited(go_on, **manner):
    """For whom a run waits, as it should."""
    with pytest.raises(Waiting) as waiting:
        go_on(**manner)
    return waiting.value
