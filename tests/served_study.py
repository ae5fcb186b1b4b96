"""A study served by sites that a coordinator reaches by bytes alone, and that coordinator's wish list.

Every site is opened from its own site.toml, as a site of another organisation is, and answers what `carry` hands it.
A lying coordinator uses the product's own coordinator to agree on keys and to add masked answers; only its questions
are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedclust.app.analysis import describe
from fedclust.app.execute import fit_study
from fedclust.app.serve import import_questions, open_session
from fedclust.app.served_study import open_served_study
from fedclust.app.site_plan import make_plan
from fedclust.app.study import parse_study
from fedclust.core.effects import each, total
from fedclust.core.envelope import Call
from fedclust.core.errors import QuorumLost
from fedclust.engines.attendance import Attendance
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.federation.run_record import RunRecord
from fedclust.questions import bounds
from fedclust.site.approval import ApprovalTerms, digest_study, roster_digest, sign_terms
from fedclust.site.site_file import make_key, read_private_key, read_public_key, read_site_file

import_questions()


class BytesLink:
    """Hands each request to the session of its site, and notes the calls that were asked."""

    def __init__(self, sessions):
        self.sessions = sessions
        self.calls = []  # (party, call)

    def carry(self, requests, *, timeout):  # noqa: ARG002 as links take it
        for party, data in requests.items():
            if data[:1] != b"{":
                self.calls.append((party, Call.decode(data)))
            yield party, self.sessions[party].answer_message(data)

    def close(self, *, done):
        pass


class Clock:
    """A clock that only pauses move, so that a refusal costs no time."""

    now = 0.0

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


STUDY = """\
name = "served"
columns = [{columns}]
{top}
[cluster]
{cluster}
[privacy]
verified = false
{privacy}
{sites}
"""


@dataclass
class ServedStudy:
    """Sites of one study in a folder, their sessions, and a coordinator that may ask them anything."""

    folder: Path
    rows: dict
    text: str
    profile: str = "nhs"
    approved: bool = False
    policy_lines: str = ""
    sessions: dict = field(default_factory=dict)
    coordinators: list = field(default_factory=list)
    link: BytesLink | None = None  # of the latest coordinator

    @classmethod
    def open(
        cls, folder, rows, *, cluster='method = "k-means"\nk = 3', top="", privacy='aggregation = "plain"',
        columns=None, sites="", profile="nhs", approved=False, policy_lines="",
    ):  # fmt: skip
        """`rows` maps each site to its array, or to (header, lines) of a CSV file."""
        width = next(iter(rows.values())).shape[1] if columns is None else 0
        names = columns or [f"x{i}" for i in range(width)]
        quoted = ", ".join(f'"{name}"' for name in names)
        tables = sites or "\n".join(f"[sites.{name}]" for name in rows)
        text = STUDY.format(columns=quoted, top=top, cluster=cluster, privacy=privacy, sites=tables)
        return cls.from_text(folder, rows, text, names, profile=profile, approved=approved, policy_lines=policy_lines)

    @classmethod
    def from_text(cls, folder, rows, text, names, *, profile="nhs", approved=False, policy_lines=""):
        """The same with a study's whole text; `names` are the columns of every file, or a list for each site."""
        made = cls(Path(folder), rows, text, profile, approved, policy_lines)
        made._write_sites(names)
        made._open_sessions()
        return made

    def _write_sites(self, names):
        keys = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "study.toml").write_text(self.text)
        for party in self.rows:
            (self.folder / party).mkdir(parents=True)
            make_key(self.folder / party / "own.key")
            keys[party] = read_public_key(self.folder / party / "own.key.pub").hex()
        roster = "".join(f'{party} = "{key}"\n' for party, key in keys.items())
        for party, rows in self.rows.items():
            folder = self.folder / party
            own = names[party] if isinstance(names, dict) else names
            header = ",".join(own)
            if isinstance(rows, np.ndarray):
                body = "\n".join(",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in rows)
            else:
                body = "\n".join(rows)
            (folder / "rows.csv").write_text(f"{header}\n{body}\n")
            signed = ""
            if self.approved:
                make_key(folder / "steward.key")
                signed = 'steward = "steward.key.pub"\napproval = "approval.json"\n'
            (folder / "site.toml").write_text(
                f'name = "{party}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n{signed}'
                f'[policy]\nprofile = "{self.profile}"\n{self.policy_lines}\n[roster]\n{roster}'
            )
            if self.approved:
                self._approve(party)

    def _approve(self, party):
        """What `fedclust site plan --approve` does."""
        folder = self.folder / party
        site = read_site_file(folder / "site.toml")
        study = parse_study(self.text, folder=Path(), served=True)
        plan = make_plan(study, party, site.source, site.policy)
        terms = ApprovalTerms(
            "steward", party, digest_study(self.text), site.policy.digest, roster_digest(site.roster),
            version("fedclust"), "9999-01-01", plan.max_answers, study.aggregation.mode,
        )  # fmt: skip
        (folder / "approval.json").write_text(sign_terms(terms, read_private_key(folder / "steward.key")))

    def _open_sessions(self):
        for party in self.rows:
            site = read_site_file(self.folder / party / "site.toml")
            self.sessions[party] = open_session(site, study=self.folder / "study.toml")

    def coordinator(self, number=1):
        """A federation of these sites, for run `number` of the study."""
        study = parse_study(self.text, folder=Path(), served=True)
        run, clock = f"{number:x}-{digest_study(self.text)}", Clock()
        hurry = Attendance(timeout=1, patience=0, clock=clock, pause=clock.pause)
        self.link = BytesLink(self.sessions)
        engine = NetworkedEngine(self.link, tuple(self.rows), run=run, study=self.text, attendance=hurry)
        ready = open_served_study(study, engine, RunRecord(self.folder / f"run-{number}", run, durable=False))
        self.coordinators.append(ready)
        return ready

    def __enter__(self):
        for session in self.sessions.values():
            session.__enter__()
        return self

    def __exit__(self, *facts):
        for ready in self.coordinators:
            ready.fed.close()
        for session in self.sessions.values():
            session.__exit__(*facts)


def run_honestly(served, number=1):
    """Fit and describe the study as `fedclust coordinate` does; what each site refused as not in the study."""
    ready = served.coordinator(number)
    model, selection = fit_study(ready)
    describe(model, ready.fed, selection)
    return [reason for session in served.sessions.values() for reason in session.refusals]


class Liar:
    """A coordinator that asks what it likes; a refusal is None, and its code is noted."""

    def __init__(self, served, number=1):
        self.fed = served.coordinator(number).fed
        self.codes = []

    def total(self, handler, message):
        return self._ask(total(handler, message))

    def each(self, handler, message):
        return self._ask(each(handler, message))

    def _ask(self, protocol):
        try:
            return self.fed.run(protocol)[0]
        except QuorumLost as lost:
            self.codes += sorted(set(lost.missing.values()))
            return None

    def view(self, missing="refuse"):
        """The view that an honest run begins with."""
        return self._ask(bounds.agree_on_bounds(len(self.fed.columns), missing))


def count_exact(found, rows, tolerance=1e-9):
    """How many of the rows are among the points found, to nine digits."""
    if not len(found):
        return 0
    found = np.asarray(found)
    scale = np.abs(rows).max()
    return sum(bool((np.abs(found - row).max(axis=1) <= tolerance * scale).any()) for row in rows)
