"""Rehearses a served run in one process: every site answers as bytes under its real rules, on a copy of its state.

Where a site refuses, the refusal is noted and a server without rules answers in its place, so that the run goes on and
all refusals of all sites come to light. Nothing is written to a site's real folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedclust.app.analysis import describe
from fedclust.app.blind_lead import LeadVaults
from fedclust.app.blind_relay import lead_site
from fedclust.app.fit_study import fit_study
from fedclust.app.rehearsal_sites import RehearsalFile, make_rehearsal_files
from fedclust.app.rehearsed_site import RehearsedSite, SiteRefusal
from fedclust.app.run_folder import new_run_name
from fedclust.app.serve import import_questions, open_server_for_study
from fedclust.app.served_study import UnreachedSites, open_served_study
from fedclust.app.study import Study
from fedclust.core.errors import FedclustError, RunFailed
from fedclust.core.types import PartyId
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.federation.aggregation import Aggregation
from fedclust.federation.run_record import RunRecord
from fedclust.privacy.blind.blind_adder import AddingEngine
from fedclust.site.server import SiteServer
from fedclust.site.site_file import SiteFile, find_site_only_keys


@dataclass(frozen=True)
class SiteOutcome:
    """What a rehearsal found at one site."""

    party: PartyId
    policy: str
    rules_from: str
    asked: int
    answered: int
    refusals: tuple[SiteRefusal, ...]
    message_of_leaving: int | None = None  # the message at which the site left the run, if it did

    @property
    def refused(self) -> int:
        return self.asked - self.answered


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found; `stopped` says why it did not reach the end, and `lost` why a served run would fail."""

    study: Study
    sites: tuple[SiteOutcome, ...]
    stopped: str | None
    lost: str | None
    notes: tuple[str, ...] = ()

    @property
    def would_succeed(self) -> bool:
        """Whether a served run would reach its end, perhaps without some sites."""
        return self.lost is None

    @property
    def all_answer(self) -> bool:
        """Whether every site answers every question."""
        return self.stopped is None and not any(site.refusals for site in self.sites)


class RehearsalLink:
    """Carries bytes to sites in this process, as a network would."""

    def __init__(self, sites: Mapping[PartyId, RehearsedSite]) -> None:
        self.sites = sites

    def carry(self, requests: Mapping[PartyId, bytes], *, timeout: float) -> Iterator[tuple[PartyId, bytes]]:  # noqa: ARG002
        for party, data in requests.items():
            yield party, self.sites[party].answer_message(data)

    def close(self, *, done: bool) -> None:
        """Do nothing: the sites are in this process."""


def rehearse(study: Study, site_files: Mapping[PartyId, SiteFile], *, policy: str = "standard") -> Rehearsal:
    """Rehearse a study; sites without a file get the policy in the study, or `policy` as `fedclust enrol` writes it."""
    import_questions()
    study = replace(study, is_verified=False)  # nobody has to prove anything to sites in one process
    has_site_keys = any(True for _ in find_site_only_keys(tomllib.loads(study.text)))
    _check_served_study(study)
    outcomes, stopped = _rehearse_once(study, site_files, policy, has_site_keys=has_site_keys, goes_on=True)
    lost = stopped
    if stopped is None and any(site.refusals for site in outcomes):
        lost = _why_lost(study, site_files, policy, has_site_keys=has_site_keys)
    return Rehearsal(study, outcomes, stopped, lost, tuple(_notes(site_files, has_site_keys=has_site_keys)))


def _why_lost(study: Study, site_files: Mapping[PartyId, SiteFile], policy: str, *, has_site_keys: bool) -> str | None:
    """Return why the served run would fail where sites refuse, or None if its quorum does without them."""
    if study.cluster.options.get("quorum", "all") == "all":
        return "the study cannot go on, because it needs all sites"
    return _rehearse_once(study, site_files, policy, has_site_keys=has_site_keys, goes_on=False)[1]


def _notes(site_files: Mapping[PartyId, SiteFile], *, has_site_keys: bool) -> Iterator[str]:
    if not has_site_keys:
        return
    yield (
        "The study sets `source` or `policy` for sites. Remove these keys before you send it: a served site takes them "
        "only from its own file, and refuses the study otherwise."
    )
    if waiting := [name for name, site in site_files.items() if site.approval is not None]:
        yield (
            f"The approvals of {', '.join(waiting)} were not checked, because they are for the study without these "
            "keys. Rehearse the study that the sites will get."
        )


def _check_served_study(study: Study) -> None:
    """Refuse a study that no served run can begin with."""
    names = tuple(site.name for site in study.sites)
    study.aggregation.check_parties(names)
    open_served_study(replace(study, aggregation=Aggregation(), is_verified=False), UnreachedSites(names))


def _rehearse_once(
    study: Study, site_files: Mapping[PartyId, SiteFile], policy: str, *, has_site_keys: bool, goes_on: bool
) -> tuple[tuple[SiteOutcome, ...], str | None]:
    """Run the study once; return what happened at each site, and why the run stopped, if it did."""

    def open_server(file: RehearsalFile) -> SiteServer:
        return open_server_for_study(file, study)

    with TemporaryDirectory(prefix="fedclust-rehearsal-") as place, ExitStack() as stack:
        folder = Path(place)
        files = make_rehearsal_files(study, site_files, folder, policy, checks_approvals=not has_site_keys)
        sites = {
            party: stack.enter_context(RehearsedSite(file, open_server, goes_on=goes_on))
            for party, file in files.items()
        }
        stopped = _run_study(study, sites, folder / "coordinator")
        return tuple(_outcome(site, files[party]) for party, site in sites.items()), stopped


def _outcome(site: RehearsedSite, file: RehearsalFile) -> SiteOutcome:
    return SiteOutcome(
        site.party,
        file.policy.name,
        file.rules_from,
        site.asked,
        site.answered,
        tuple(site.refusals.values()),
        site.message_of_leaving,
    )


def _run_study(study: Study, sites: Mapping[PartyId, RehearsedSite], folder: Path) -> str | None:
    """Run the coordinator's script over the sites; return why it stopped, or None."""
    name = new_run_name(study.text)
    engine = NetworkedEngine(RehearsalLink(sites), tuple(sites), run=name, study=study.text)
    record = RunRecord(folder, name, durable=False)
    try:
        engine.greet_all()
        if study.aggregation.is_blind:
            ready = open_served_study(study, AddingEngine(engine), record, enrolled=_lead_keys(study, sites))
        else:
            ready = open_served_study(study, engine, record)
        with ready.fed:
            model, selection = fit_study(ready)
            describe(model, ready.fed, selection)
    except FedclustError as error:
        return str(error)
    return None


def _lead_keys(study: Study, sites: Mapping[PartyId, RehearsedSite]) -> LeadVaults:
    lead = lead_site(study)
    vaults = sites[lead].vaults
    if vaults is None:
        raise RunFailed(f"site '{lead}' leads the run, but its site file sets no identity")
    return LeadVaults(vaults)
