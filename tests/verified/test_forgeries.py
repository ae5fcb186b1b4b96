"""A coordinator that asks anything but the next question of the script gets nothing, and the honest run still ends."""

from collections import Counter

import numpy as np
import pytest

from fedclust.core import wire
from fedclust.core.envelope import EarlierOutcomes, Envelope, OpenedCall
from verified.forgeries import forged_calls
from verified.served_sites import NAMES, ServedSites, code_of, pack, study_text, unpack

STUDIES = {
    "k fixed": ('method = "k-means"\nk = 3', "", ""),
    "k fixed, every sum": ('method = "fuzzy-c-means"\nk = 3\nmax_iter = 5', 'scale = "standardise"', ""),
    "k chosen": ('method = "fuzzy-c-means"\nk = "2..3"\nmax_iter = 4', "", ""),
    "private": ('method = "k-means"\nk = 3', "bounds = [-10, 30]", "epsilon = 50.0\ndelta = 1e-4"),
}


class Forger:
    """Sends forged questions to a site before each honest one, and counts what came back."""

    def __init__(self, sites, share, seed=0):
        self.sites, self.share = sites, share
        self.rng = np.random.default_rng(seed)
        self.codes, self.places, self.answered, self.honest_refusals = Counter(), Counter(), [], []
        self.sent, self.replies, self.honest = {name: [] for name in NAMES}, {}, b""

    def __call__(self, party, data):
        if data[:1] == b"{":
            return data
        self.honest = data
        first, outcomes, call = unpack(data)
        for place, forged in forged_calls(call, self.rng):
            if self.rng.random() < self.share:
                self.try_out(party, place, lambda forged=forged: pack(first, outcomes, forged), call)
        self.try_out(party, "unwrapped", lambda: call.wire_bytes, call)
        self.try_out(party, "handler", lambda: self.other_handler(first, outcomes, call), call)
        for delayed in self.sent[party][-3:-1]:
            self.try_out(party, "delayed", lambda delayed=delayed: delayed, call)
        for other in NAMES:
            theirs = self.sent[other][-1] if self.sent[other] else b""
            own = {call.digest, *(unpack(sent)[2].digest for sent in self.sent[party][-1:])}
            if theirs and unpack(theirs)[2].digest not in own:
                self.try_out(party, "swapped", lambda theirs=theirs: theirs, call)
        if self.sent[party]:
            again = self.sites.sessions[party].answer_message(self.sent[party][-1])
            assert again == self.replies[party], "the last question again gets its answer again"
        self.sent[party].append(data)
        self.replies[party] = self.sites.sessions[party].answer_message(data)
        if code_of(self.replies[party]):
            self.honest_refusals.append((call.handler, code_of(self.replies[party])))
        return data

    def other_handler(self, first, outcomes, call):
        e = wire.decode(Envelope, call.wire_bytes)
        name = "roster.offer" if call.handler != "roster.offer" else "bounds.count_rows"
        forged = Envelope(e.run, e.step, name, e.want, e.cohort, e.masks, e.body)
        return wire.encode(OpenedCall(EarlierOutcomes(first, outcomes), wire.encode(forged)))

    def try_out(self, party, place, make, call):
        try:
            data = make()
        except (TypeError, OverflowError, ValueError, KeyError, AttributeError):
            return  # it cannot even be written
        if data == self.honest:
            return
        code = code_of(self.sites.sessions[party].answer_message(data))
        self.codes[code] += 1
        self.places[place] += 1
        if not code:
            self.answered.append((call.step, call.handler, place))


def run_with_forgeries(folder, study, share):
    cluster, top, privacy = STUDIES[study]
    sites = ServedSites.make(folder / "sites", study_text(cluster, top=top, privacy=privacy))
    run = sites.begin()
    forger = Forger(sites, share)
    sites.finish(run, sites.engine(run, before=forger))
    assert forger.answered == []
    assert forger.honest_refusals == []
    assert all(sites.model_at(name, run) == run.model_path.read_bytes() for name in NAMES)
    return forger


@pytest.mark.parametrize("study", STUDIES)
def test_no_forged_question_is_answered_and_no_honest_one_refused(tmp_path, study):
    forger = run_with_forgeries(tmp_path, study, share=0.08)
    assert sum(forger.codes.values()) > 50


@pytest.mark.long
def test_five_thousand_forged_questions_get_no_answer(tmp_path):
    found = [run_with_forgeries(tmp_path / str(number), study, share=1.0) for number, study in enumerate(STUDIES)]
    codes = sum((forger.codes for forger in found), Counter())
    print(dict(codes), sum(codes.values()))  # noqa: T201
    assert sum(codes.values()) >= 5000
