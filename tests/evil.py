"""A coordinator that may send any call to any desk, as bytes."""

from dataclasses import replace

import numpy as np

import fedclust as fc
from fedclust.algorithms.cmeans.row_split import make_question
from fedclust.core.envelope import Call
from fedclust.core.site_interface import View
from fedclust.privacy.dropout_recovery import Respondents
from fedclust.privacy.roster import KeyRequest, Roster
from fedclust.site.policy import PROFILES

SECURE = replace(PROFILES["cms"], aggregation="secure")
VIEW = View(np.full(2, 5, np.int32))
ASK = make_question(VIEW, np.array([[0.0, 0.0], [8.0, 8.0]]), 1.0)


class Evil:
    """Sends any call to any desk, as bytes."""

    def __init__(self, parties, policy=SECURE, aggregation="secure"):
        rng = np.random.default_rng(1)
        rows = {f"p{i:02}": rng.normal(size=(40, 2)) + 8 * (np.arange(40) % 2)[:, None] for i in range(parties)}
        self.fed = fc.Federation.local(rows, policy=policy, aggregation=aggregation)
        self.names, self.step = self.fed.parties, 0
        self.run = self.fed.run_id

    def run_select(self, party, handler, message, want="each", cohort=None, masks=None, step=None):
        self.step += 1
        call = Call(self.run, step or self.step, handler, message, want, tuple(cohort or self.names), masks)
        return self.fed.local_sites[party].answer_bytes(call.wire_bytes)

    def moments(self, party, *, cohort=None, masks="lasting-1", ask=ASK):
        return self.run_select(party, "row_split.moments", ask, "total", cohort, masks)

    def offers(self, name):
        return {p: self.run_select(p, "roster.offer", KeyRequest(name)).release for p in self.names}

    def agree(self, name="lasting-1", offers=None):
        known = Roster(name, offers or self.offers(name))
        return {p: self.run_select(p, "roster.accept", known) for p in self.names}

    def answered_once(self, name, cohort):
        """Everyone's answer to one question, under keys for one sum."""
        known = Roster(name, {p: self.run_select(p, "roster.offer", KeyRequest(name)).release for p in cohort})
        for party in cohort:
            self.run_select(party, "dropout_recovery.share", known)
        step = self.step = self.step + 1
        return {p: self.run_select(p, "row_split.moments", ASK, "total", cohort, name, step) for p in cohort}

    def consents(self, name, live):
        """What parties say to a list of who answered."""
        return {p: self.run_select(p, "dropout_recovery.consent", Respondents(name, tuple(live))) for p in live}
