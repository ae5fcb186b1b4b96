"""Leads a blind run by files at one of its sites, next to the answers that the site gives as a participant."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedclust.app.blind_relay import lead_site
from fedclust.app.execute import resume_run
from fedclust.app.run_folder import EngineChoice, Run
from fedclust.app.served_study import open_served_study
from fedclust.app.study import Study, parse_study
from fedclust.core.errors import QuorumLost, Waiting
from fedclust.core.types import PartyId
from fedclust.engines.files.files_link import FilesLink
from fedclust.engines.files.message_file import COORDINATOR_ID, LEAD_SUFFIX, MESSAGE_SUFFIX
from fedclust.engines.registry import RunSpec
from fedclust.federation.aggregation import EnrolledSites
from fedclust.federation.run_record import RunRecord
from fedclust.privacy.blind.lead_relay import LeadEngine
from fedclust.site.session import SiteSession
from fedclust.site.site_file import SiteFile, read_private_key
from fedclust.site.vault import Vaults


class LeadVaults(EnrolledSites):
    """The leading site's own keys, which never leave the site."""

    def __init__(self, vaults: Vaults) -> None:
        self._vaults = vaults

    def vaults_for(self, party: PartyId) -> Vaults:  # noqa: ARG002 a lead asks for its own only
        return self._vaults


class BlindLead:
    """The role of one site as the lead of a blind run, in addition to its role as a participant."""

    def __init__(self, session: SiteSession, site: SiteFile, inbox: Path, outbox: Path, out: Path | None) -> None:
        self.session, self.site = session, site
        self._message_folders = outbox, inbox
        self._out = out
        self._inboxes_seen: dict[str, frozenset[tuple[str, int]]] = {}

    def study_to_lead(self, name: str) -> Study | None:
        """Return the study of a run if this site leads it."""
        greeting = self.session.greeting_for_run(name)
        study = parse_study(greeting.study, folder=Path(), served=True) if greeting else None
        return study if study and study.aggregation.is_blind and lead_site(study) == self.site.name else None

    def resume_script(self, name: str) -> Run | None:
        """Continue the script as far as possible; return the run once there is a model."""
        there = self._inbox_files()
        if self._inboxes_seen.get(name) == there:  # nothing new: replaying the script would change nothing
            return None
        self._inboxes_seen[name] = there
        study, server = self.study_to_lead(name), self.session.server_for_run(name)
        if study is None or server is None or server.gate.vaults is None or self.site.identity is None:
            return None
        run = self._open_run_folder(name, study)
        parties = tuple(site.name for site in study.sites)
        link = FilesLink(
            RunSpec(name + LEAD_SUFFIX, study.text, (COORDINATOR_ID,), run.folder, wait=False),
            {COORDINATOR_ID: self._message_folders},
            read_private_key(self.site.identity),
            {COORDINATOR_ID: self.site.coordinator or b""},
            idle=lambda: None,
            own_name=self.site.name,
        )
        engine = LeadEngine(link, parties, run=name, study=study.text, greeted=bool(link.greeted))
        try:
            if not run.is_finished:
                record, keys = RunRecord(run.folder, run.name), LeadVaults(server.gate.vaults())
                ready = open_served_study(study, engine, record, enrolled=keys)
                resume_run(replace(run, open_study=ready))
        except Waiting:
            return None
        except QuorumLost:
            link.forget_replies([COORDINATOR_ID])  # once the sites are fixed, it asks them again
            raise
        link.close(done=True)  # also if the run was finished before: its last message may have found a full disk
        return run

    def _inbox_files(self) -> frozenset[tuple[str, int]]:
        """List the files in the inbox, which may include an answer for the lead."""
        found = set()
        for path in self._message_folders[1].glob(f"*{MESSAGE_SUFFIX}"):
            with suppress(OSError):
                found.add((path.name, path.stat().st_size))
        return frozenset(found)

    def _open_run_folder(self, name: str, study: Study) -> Run:
        folder = self._out or self.session.folder / "lead" / hashlib.sha256(name.encode()).hexdigest()[:16]
        if (folder / "origin.json").is_file():
            return Run.find(folder)
        return Run.create(folder, study.text, origin=Path(), name=name, engine_choice=EngineChoice("lead"))
