"""The coordinator of a blind run between machines: it carries the lead's questions, adds up, and reads nothing."""

from __future__ import annotations

import time

from fedclust.app.coordinate import RunOptions, connected_engine, event_listeners
from fedclust.app.run_folder import Run, state_after
from fedclust.app.study import Study
from fedclust.core.errors import StudyError, Waiting
from fedclust.core.journal import Journal
from fedclust.core.types import PartyId
from fedclust.engines.attendance import Tell
from fedclust.engines.files.files_link import FilesLink
from fedclust.engines.files.files_site import Mailroom
from fedclust.engines.files.message_file import LEADS
from fedclust.engines.networked_engine import Networked
from fedclust.engines.run_status import Observed
from fedclust.privacy.blind.blind_adder import Adder
from fedclust.privacy.blind.lead_relay import Relay


def lead_of(study: Study) -> PartyId:
    """The site that leads a blind run: the one the study names, else its first."""
    return study.aggregation.lead or study.sites[0].name


def relay_for_lead(run: Run, options: RunOptions) -> None:
    """Carry the lead's questions until it says that the run is over."""
    study = run.study()
    lead = lead_of(study)
    if lead in options.without:
        raise StudyError(f"--without names '{lead}', which leads the run; it cannot go on without its lead")
    with run.taken(), event_listeners(run, options) as tell, connected_engine(run, study, options, tell) as engine:
        try:
            _carry(run, engine, lead, options, tell)
        except BaseException as error:
            tell("state", state=state_after(error))
            raise
        tell("state", state="finished")


def _carry(run: Run, engine: Networked, lead: PartyId, options: RunOptions, tell: Tell) -> None:
    link = engine.link
    if not isinstance(link, FilesLink):
        raise StudyError("this engine cannot carry a blind run; use files, or aggregation 'secure'")
    engine.meet()
    journal = Journal(run.folder / "coordinator" / "journal")
    try:
        hearing = Relay(Adder(Observed(engine, tell), journal), run.folder, engine.forget)
        to, back, public = link.boxes_of(lead)
        room = Mailroom(hearing, link.identity, public, back, to, other=lead, leads=True)
        while not room.ended(run.name + LEADS):
            turn = room.turn()
            if not turn.answered and not turn.over:
                _wait_for(lead, link, options)
    finally:
        journal.close()


def _wait_for(lead: PartyId, link: FilesLink, options: RunOptions) -> None:
    if not options.wait:
        raise Waiting(link.errand([lead]), (lead,))
    time.sleep(0.2)
