"""Sites in this process that are reached by bytes only, through their sessions, and a coordinator with a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedclust.app.execute import begin_next_round, begin_run, resume_run
from fedclust.app.run_folder import EngineChoice, Run
from fedclust.app.serve import open_session
from fedclust.app.served_study import open_served_study, send_outcomes
from fedclust.app.study import parse_study, read_study
from fedclust.core import wire
from fedclust.core.envelope import Answer, Call, EarlierOutcomes, OpenedCall
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.federation.run_record import RunRecord
from fedclust.privacy.keys import Identity
from fedclust.site.session import SiteSession
from fedclust.site.site_file import read_site_file

NAMES = ("north", "south", "west")
STUDY = """\
name = "heart"
columns = ["age", "bp"]
{top}
[cluster]
{cluster}
[privacy]
aggregation = "secure"
{privacy}
"""


def rows(seed: int, count: int = 40, columns: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, columns))


def study_text(cluster: str, *, top: str = "", privacy: str = "", names: tuple[str, ...] = NAMES) -> str:
    text = STUDY.format(cluster=cluster, top=top, privacy=privacy)
    return text + "".join(f"[sites.{name}]\n" for name in names)


@dataclass
class Sessions:
    """A link to sessions of this process; hooks may change or withhold requests, and change replies."""

    sessions: dict[str, SiteSession]
    before: Callable[[str, bytes], bytes | None] = lambda _, data: data
    after: Callable[[str, bytes], bytes] = lambda _, reply: reply
    asked: list[tuple[str, bytes]] = field(default_factory=list)

    def carry(self, requests, *, timeout):  # noqa: ARG002
        for party, data in requests.items():
            sent = self.before(party, data)
            if sent is not None:
                self.asked.append((party, sent))
                yield party, self.after(party, self.sessions[party].answer_message(sent))

    def close(self, *, done):
        pass


@dataclass
class ServedSites:
    """Three or more sites with folders of their own, and a coordinator's run folder."""

    folder: Path
    text: str
    names: tuple[str, ...] = NAMES
    policy: str = "none"
    sessions: dict[str, SiteSession] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, text: str, *, names=NAMES, policy="none", data=rows, spend="") -> ServedSites:
        keys = {name: Identity.new() for name in names}
        roster = "".join(f'{name} = "{key.public.hex()}"\n' for name, key in keys.items())
        for number, name in enumerate(names):
            home = folder / name
            home.mkdir(parents=True)
            (home / "own.key").touch(mode=0o600)
            (home / "own.key").write_text(keys[name].private.hex() + "\n")
            own = data(number)
            header = ",".join(parse_study(text, folder=folder, served=True).columns or ())
            np.savetxt(home / "rows.csv", own, delimiter=",", header=header, comments="", fmt="%.17g")
            (home / "site.toml").write_text(
                f'name = "{name}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
                f'[policy]\nprofile = "{policy}"\n{spend}[roster]\n{roster}'
            )
        (folder / "study.toml").write_text(text)
        made = cls(folder, text, tuple(names), policy)
        made.open()
        return made

    def open(self, *names: str) -> None:
        """Open the sites' sessions again, as a restart does."""
        for name in names or self.names:
            if name in self.sessions:
                self.sessions[name].__exit__(None, None, None)
            site = read_site_file(self.folder / name / "site.toml")
            self.sessions[name] = open_session(site, study=self.folder / "study.toml").__enter__()

    def begin(self, name: str = "run") -> Run:
        study = read_study(self.folder / "study.toml", served=True)
        return Run.create(self.folder / name, study.text, origin=Path(), engine_choice=EngineChoice("files"))

    def next_round(self, run: Run, name: str) -> Run:
        return begin_next_round(run, self.folder / name)

    def engine(self, run: Run, **options) -> NetworkedEngine:
        clock = _Clock()
        patience = Attendance(timeout=10, retry_after=0, patience=0, clock=clock, pause=clock.pause)
        link = Sessions(self.sessions, **options)
        return NetworkedEngine(link, self.names, run=run.name, study=self.text, attendance=patience)

    def finish(self, run: Run, engine: NetworkedEngine | None = None):
        """Carry on with a run to its model."""
        study = read_study(run.folder / "study.toml", served=True)
        engine = engine or self.engine(run)
        ready = open_served_study(study, engine, RunRecord(run.folder, run.name, durable=False))
        send_outcomes(ready, engine, run.folder)
        try:
            return resume_run(replace(run, open_study=ready))
        finally:
            engine.close()

    def state(self, name: str) -> Path:
        return self.folder / name / "state"

    def model_at(self, name: str, run: Run) -> bytes:
        return (self.state(name) / "models" / run.name / "model.json").read_bytes()

    def trouble(self, name: str) -> str:
        path = self.state(name) / "trouble.log"
        return path.read_text() if path.exists() else ""

    def in_one_process(self, name: str = "here") -> dict:
        """The model of the same study in one process, unverified."""
        text = self.text
        for site in self.names:
            text = text.replace(f"[sites.{site}]", f'[sites.{site}]\nsource = "{self.folder / site / "rows.csv"}"')
        (self.folder / "pooled.toml").write_text(text)
        run = begin_run(read_study(self.folder / "pooled.toml"), self.folder / name, origin=self.folder)
        resume_run(run)
        return json.loads(run.model_path.read_text())


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def unpack(data: bytes) -> tuple[int, tuple[bytes, ...], Call]:
    """The outcomes and the call of a request."""
    opened = wire.decode(OpenedCall, data)
    return opened.earlier.first, opened.earlier.outcomes, Call.decode(opened.call)


def pack(first: int, outcomes: tuple[bytes, ...], call: Call) -> bytes:
    return wire.encode(OpenedCall(EarlierOutcomes(first, tuple(outcomes)), call.wire_bytes))


def code_of(reply: bytes) -> str:
    """The code of a refusal; empty for an answer."""
    return wire.decode(Answer, reply).code
