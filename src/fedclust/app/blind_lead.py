"""A blind run by files, at the site that leads it: its script, next to what the site answers as a site."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedclust.app.blind_relay import lead_of
from fedclust.app.coordinate import open_served_study
from fedclust.app.execute import resume_run
from fedclust.app.run_folder import Run, Served
from fedclust.app.study import Study, parse_study
from fedclust.core.errors import QuorumLost, Waiting
from fedclust.core.types import PartyId
from fedclust.engines.files.files_link import FilesLink
from fedclust.engines.files.message_file import COORDINATOR, LEADS, SUFFIX
from fedclust.engines.registry import RunSpec
from fedclust.federation.aggregation import Enrolled
from fedclust.federation.federation import RunRecord
from fedclust.privacy.blind.lead_relay import LeadEngine
from fedclust.site.session import Reception
from fedclust.site.site_file import SiteFile, private_key
from fedclust.site.vault import Vaults


class OwnVaults(Enrolled):
    """The lead's own keys, which are at its site and nowhere else."""

    def __init__(self, vaults: Vaults) -> None:
        self._vaults = vaults

    def of(self, party: PartyId) -> Vaults:  # noqa: ARG002 a lead asks for its own only
        return self._vaults


class Lead:
    """One site's part as the lead of a blind run, beside its part as a site."""

    def __init__(self, reception: Reception, site: SiteFile, inbox: Path, outbox: Path, out: Path | None) -> None:
        self.reception, self.site = reception, site
        self._boxes = outbox, inbox
        self._out = out
        self._looked: dict[str, frozenset[tuple[str, int]]] = {}

    def leads(self, name: str) -> Study | None:
        """The study of a run, if this site leads it."""
        greeting = self.reception.known(name)
        study = parse_study(greeting.study, folder=Path(), served=True) if greeting else None
        return study if study and study.aggregation.blind and lead_of(study) == self.site.name else None

    def go_on(self, name: str) -> Run | None:
        """Drive the script as far as it goes; the run, once there is a model."""
        there = self._there()
        if self._looked.get(name) == there:  # the script would be played again for nothing
            return None
        self._looked[name] = there
        study, desk = self.leads(name), self.reception.desk(name)
        if study is None or desk is None or desk.gate.vaults is None or self.site.identity is None:
            return None
        run = self._run(name, study)
        parties = tuple(site.name for site in study.sites)
        link = FilesLink(
            RunSpec(name + LEADS, study.text, (COORDINATOR,), run.folder, wait=False),
            {COORDINATOR: self._boxes},
            private_key(self.site.identity),
            {COORDINATOR: self.site.coordinator or b""},
            idle=lambda: None,
            me=self.site.name,
        )
        engine = LeadEngine(link, parties, run=name, study=study.text, met=bool(link.met))
        try:
            if not run.finished:
                record, keys = RunRecord(run.folder, run.name), OwnVaults(desk.gate.vaults())
                ready = open_served_study(study, engine, record, enrolled=keys)
                resume_run(replace(run, open_study=ready))
        except Waiting:
            return None
        except QuorumLost:
            link.forget([COORDINATOR])  # once the sites are mended, it is to ask them anew
            raise
        link.close(done=True)  # also of a run that was finished before: its end may have found no room
        return run

    def _there(self) -> frozenset[tuple[str, int]]:
        """What is in the inbox: an answer to the lead may be."""
        found = set()
        for path in self._boxes[1].glob(f"*{SUFFIX}"):
            with suppress(OSError):
                found.add((path.name, path.stat().st_size))
        return frozenset(found)

    def _run(self, name: str, study: Study) -> Run:
        folder = self._out or self.reception.folder / "lead" / hashlib.sha256(name.encode()).hexdigest()[:16]
        if (folder / "origin.json").is_file():
            return Run.find(folder)
        return Run.make(folder, study.text, origin=Path(), name=name, served=Served("lead"))
