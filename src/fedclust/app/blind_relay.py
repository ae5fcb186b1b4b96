"""The coordinator of a blind run between machines: it passes the lead's questions on, adds up, and can read nothing."""

from __future__ import annotations

import time

from fedclust.app.coordinate import RunOptions, connected_engine, event_listeners
from fedclust.app.run_folder import Run, status_after_error
from fedclust.app.study import Study
from fedclust.core.errors import StudyError, Waiting
from fedclust.core.journal import Journal
from fedclust.core.types import PartyId
from fedclust.engines.attendance import EventListener
from fedclust.engines.files.files_link import FilesLink
from fedclust.engines.files.files_site import FileTransport
from fedclust.engines.files.message_file import LEAD_SUFFIX
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.run_status import ObservedEngine
from fedclust.privacy.blind.blind_adder import AddingEngine
from fedclust.privacy.blind.lead_relay import LeadRelay


def lead_site(study: Study) -> PartyId:
    """Return the site that leads a blind run: the one the study names, or else its first."""
    return study.aggregation.lead or study.sites[0].name


def relay_for_lead(run: Run, options: RunOptions) -> None:
    """Pass the lead's questions on until it reports that the run is finished."""
    study = run.study()
    lead = lead_site(study)
    if lead in options.without:
        raise StudyError(
            f"--without names '{lead}', which leads the run; a blind run needs its leading site, so leave the "
            "option out"
        )
    with (
        run.lock_same_version(),
        event_listeners(run, options) as notify,
        connected_engine(run, study, options, notify) as engine,
    ):
        try:
            _carry_lead_questions(run, engine, lead, options, notify)
        except BaseException as error:
            notify("state", state=status_after_error(error))
            raise
        notify("state", state="finished")


def _carry_lead_questions(
    run: Run, engine: NetworkedEngine, lead: PartyId, options: RunOptions, notify: EventListener
) -> None:
    link = engine.link
    if not isinstance(link, FilesLink):
        raise StudyError(
            "this engine does not support blind aggregation; use engine 'files', or set aggregation to 'secure'"
        )
    engine.greet_all()
    journal = Journal(run.folder / "coordinator" / "journal")
    try:
        relay = LeadRelay(AddingEngine(ObservedEngine(engine, notify), journal), run.folder, engine.forget_replies)
        to, back, public = link.folders_and_key(lead)
        transport = FileTransport(relay, link.identity, public, back, to, other=lead, to_lead=True)
        while not transport.has_ended(run.name + LEAD_SUFFIX):
            report = transport.answer_inbox()
            if not report.answered and not report.all_ended:
                _wait_for_lead(lead, link, options)
    finally:
        journal.close()


def _wait_for_lead(lead: PartyId, link: FilesLink, options: RunOptions) -> None:
    if not options.wait:
        raise Waiting(link.describe_waiting([lead]), (lead,))
    time.sleep(0.2)
