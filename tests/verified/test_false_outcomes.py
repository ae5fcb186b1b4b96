"""False totals steer no question, and a coordinator that tells sites different things gets no further answers."""

from dataclasses import replace

import numpy as np
import pytest

from fedclust.core import wire
from fedclust.core.envelope import Answer, SealedAnswer
from fedclust.core.errors import RunFailed
from fedclust.core.ring import Exact
from fedclust.privacy.verified.linear_tags import SUM_TAG_BYTES
from fedclust.privacy.verified.outcomes import OwnAnswer, StepOutcome
from verified.served_sites import ServedSites, code_of, pack, study_text, unpack

CLUSTER = 'method = "k-means"\nk = 3\nmax_iter = 5'
EXACT = 'opening = "exact"'


def read_last(outcomes):
    return wire.decode(StepOutcome, outcomes[-1])


def with_last(outcomes, changed):
    return (*outcomes[:-1], wire.encode(changed))


def altered_outcomes(outcome, rng):
    """Outcomes that differ from a proven one in one place."""
    if outcome.added is not None:
        added = outcome.added
        for at in rng.integers(len(added.low), size=6):
            yield replace(outcome, added=replace(added, low=_flipped(added.low, at)))
        yield replace(outcome, added=replace(added, high=_flipped(added.high, rng.integers(len(added.high)))))
        yield replace(outcome, added=replace(added, tag=_flipped(added.tag, 0)))
        yield replace(outcome, parties=outcome.parties[1:])
    for party, own in outcome.answers.items():
        others = {name: one for name, one in outcome.answers.items() if name != party}
        yield replace(outcome, answers=others)
        if own.proof:
            yield replace(outcome, answers={**outcome.answers, party: OwnAnswer(own.body, _flipped(own.proof, 3))})
            yield replace(outcome, answers={**outcome.answers, party: OwnAnswer(own.body + b"x", own.proof)})
    yield replace(outcome, added=None, answers={}, parties=())
    yield replace(outcome, added=None, answers={}, parties=(), missing={"stranger": "no-answer"})
    yield replace(outcome, added=None, answers={}, parties=(), missing={"north": "not a code"})


def _flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class FalseOutcomes:
    """Sends each request with altered outcomes before the honest one, and counts the codes."""

    def __init__(self, sites):
        self.sites, self.rng, self.answered, self.tried = sites, np.random.default_rng(0), [], 0

    def __call__(self, party, data):
        if data[:1] == b"{":
            return data
        first, outcomes, call = unpack(data)
        for false in altered_outcomes(read_last(outcomes), self.rng) if outcomes else ():
            self.tried += 1
            reply = self.sites.sessions[party].answer_message(pack(first, with_last(outcomes, false), call))
            if not code_of(reply):
                self.answered.append((call.step, call.handler, false))
        return data


def test_no_altered_outcome_is_accepted_and_the_honest_run_ends(tmp_path):
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()
    liar = FalseOutcomes(sites)
    sites.finish(run, sites.engine(run, before=liar))
    assert liar.answered == []
    assert liar.tried > 300
    assert sites.model_at("north", run) == run.model_path.read_bytes()


class FalseTotal:
    """Changes one number of one site's masked answer to one sum, and follows the script from that false sum."""

    def __init__(self, number, unit):
        self.number, self.unit, self.sums, self.parties = number, unit, 0, set()

    def __call__(self, party, reply):
        if reply[:1] == b"{" or party != "south":
            return reply
        answer = wire.decode(Answer, reply)
        sealed = None if answer.sealed is None else SealedAnswer.decode(answer.sealed)
        if sealed is None or sealed.masks is None or len(sealed.proof) != SUM_TAG_BYTES:
            return reply
        self.sums += 1
        if self.sums != self.number:
            return reply
        name = next(iter(sealed.release.schema()))
        exact = sealed.release.field_value(name)
        limbs = exact.limbs.copy()
        limbs.reshape(-1)[0] += np.uint64(self.unit)
        false = replace(sealed, release=replace(sealed.release, **{name: Exact(limbs, exact.unit)}))
        return wire.encode(replace(answer, sealed=false.wire_bytes))


@pytest.mark.parametrize("number", range(1, 12))
def test_no_question_that_a_false_total_steers_is_answered(tmp_path, number):
    sites = ServedSites.make(tmp_path, study_text(CLUSTER, privacy=EXACT))
    run = sites.begin()
    liar = FalseTotal(number, 1)
    codes = []

    def listen(party, reply):
        if liar.sums >= number and reply[:1] != b"{":
            codes.append(code_of(reply))
        return liar(party, reply)

    with pytest.raises(RunFailed, match=r"did not make|impossible value"):
        sites.finish(run, sites.engine(run, after=listen))
    assert liar.sums == number
    assert set(codes[1:]) <= {"not-proven"}  # the first is that of the last site which is asked for the sum


def test_sites_that_are_told_different_endings_of_a_step_answer_nothing_more(tmp_path):
    """One site is told that a sum was lost, and follows that; the others are told the sum."""
    sites = ServedSites.make(tmp_path, study_text(CLUSTER, privacy=EXACT))
    run = sites.begin()
    seen = {}

    def split(party, data):
        if data[:1] == b"{":
            return data
        first, outcomes, call = unpack(data)
        if call.step == 8 and party == "north":
            lost = StepOutcome((), None, {}, {"south": "no-answer"})
            offer = unpack(seen["offer"])[2]
            again = replace(offer, step=8, message=type(offer.message)("lasting-2"))
            seen["followed"] = code_of(
                sites.sessions[party].answer_message(pack(first, with_last(outcomes, lost), again))
            )
        seen.setdefault("offer", data)
        return data

    with pytest.raises(RunFailed) as failed:
        sites.finish(run, sites.engine(run, before=split))
    assert seen["followed"] == ""  # that a site did not answer is the coordinator's word
    assert failed.value.missing == {"north": "step-reused"}
    with pytest.raises(RunFailed):
        sites.finish(run)


def test_a_message_between_sites_cannot_be_delivered_in_a_later_step(tmp_path):
    """Counts of an earlier question, delivered again, would make the test of counts pass whatever the rows are."""
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()
    earlier, refused = {}, []

    def stale(party, data):
        if data[:1] == b"{":
            return data
        first, outcomes, call = unpack(data)
        if call.handler == "floored_opening.hide_counts":
            if party in earlier and call.message.messages:
                message = replace(call.message, messages=earlier[party].messages)
                refused.append(
                    code_of(sites.sessions[party].answer_message(pack(first, outcomes, replace(call, message=message))))
                )
            earlier[party] = call.message
        return data

    sites.finish(run, sites.engine(run, before=stale))
    assert refused
    assert set(refused) == {"not-next-question"}


def test_a_site_that_is_given_another_model_says_so(tmp_path):
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()

    def other(party, data):
        if data[:1] != b"{" and unpack(data)[2].handler == "transcript.finish" and party == "south":
            first, outcomes, call = unpack(data)
            reply = sites.sessions[party].answer_message(
                pack(first, outcomes, replace(call, message=type(call.message)(bytes(32))))
            )
            assert code_of(reply) == "another-model"
            return None
        return data

    sites.finish(run, sites.engine(run, before=other))
    assert "Not every site confirmed" in run.analysis["notes"][-1]
    assert not (sites.state("south") / "models").exists()
    assert sites.model_at("north", run) == run.model_path.read_bytes()


def test_bytes_that_nobody_wrote_are_refused_and_disturb_nothing(tmp_path):
    """Random changes of whole requests: the site never raises, and the honest question after it is answered."""
    sites = ServedSites.make(tmp_path, study_text(CLUSTER, privacy=EXACT))
    run = sites.begin()
    rng, answered = np.random.default_rng(5), []

    def disturb(party, data):
        if data[:1] == b"{" or party != "west":
            return data
        first, outcomes, call = unpack(data)
        for _ in range(10):
            spoilt = bytearray(data)
            for at in rng.integers(len(data), size=int(rng.integers(1, 4))):
                spoilt[at] = int(rng.integers(256))
            if bytes(spoilt) != data and not code_of(sites.sessions[party].answer_message(bytes(spoilt))):
                answered.append(call)
        others = (pack(other, outcomes, call) for other in (-5, 0, first + 1, 1 << 40))
        answered.extend(call for sent in others if not code_of(sites.sessions[party].answer_message(sent)))
        return data

    sites.finish(run, sites.engine(run, before=disturb))
    assert answered == []
    assert sites.model_at("west", run) == run.model_path.read_bytes()
