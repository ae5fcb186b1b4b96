"""A coordinator that asks what it likes, with or without friends among the sites, does not open one site's answer."""

from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from evil import ASK, SECURE, Evil
from fedclust.algorithms.cmeans.row_split import make_question
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.errors import WireError
from fedclust.core.site_interface import View
from fedclust.privacy import keys, roster
from fedclust.privacy.roster import KeyOffer, Roster
from fedclust.site.policy import PROFILES
from fedclust.testing.faulty_engines import Faulty


def test_what_evil_asks_is_answered_where_it_is_honest():
    evil = Evil(4)
    assert all(isinstance(reply, SealedAnswer) for reply in evil.agree().values())
    assert isinstance(evil.moments("p00"), SealedAnswer)


def test_a_copied_key_is_refused():
    evil = Evil(3)
    offers = evil.offers("lasting-1")
    vault = evil.fed.local_sites["p02"].gate.vault_for(evil.run)
    copied = offers["p00"].mask
    about = roster._key_statement(evil.run, "lasting-1", "p02", copied, offers["p02"].message)
    offers["p02"] = KeyOffer(copied, offers["p02"].message, vault.sign(about))
    assert evil.agree(offers=offers)["p01"] == Refusal("p01", "keys-refused")


def test_the_same_shared_secret_gives_other_masks_to_other_pairs():
    from fedclust.privacy.dropout_recovery import pair_label

    assert keys.expand_key(bytes(32), pair_label("a", "b")) != keys.expand_key(bytes(32), pair_label("a", "c"))
    assert pair_label("a", "b") == pair_label("b", "a")


def test_keys_of_fewer_parties_than_are_enrolled_are_refused():
    evil = Evil(5)
    offers = evil.offers("lasting-1")
    few = {p: offers[p] for p in ("p00", "p01", "p02")}
    assert evil.run_select("p00", "roster.accept", Roster("lasting-1", few)) == Refusal("p00", "keys-refused")
    once = evil.offers("once-9")
    few = {p: once[p] for p in ("p00", "p01", "p02")}
    assert evil.run_select("p00", "dropout_recovery.share", Roster("once-9", few)) == Refusal("p00", "keys-refused")


def test_a_masked_sum_over_some_sites_is_refused():
    evil = Evil(5)
    evil.agree()
    assert evil.moments("p00", cohort=("p00", "p01", "p02")) == Refusal("p00", "not-everyone")


def test_a_cohort_that_names_a_party_twice_is_refused():
    evil = Evil(4)
    evil.agree()
    assert evil.moments("p00", cohort=(*evil.names, "p00", "p00")) == Refusal("p00", "not-understood")
    call = Call(evil.run, 99, "row_split.moments", ASK, "total", (*evil.names, "p00"), "lasting-1")
    with pytest.raises(WireError, match="twice"):
        Call.decode(call.wire_bytes)


@pytest.mark.parametrize("parties", [4, 7, 10])
def test_a_victim_that_was_told_another_cohort_is_not_opened(parties):
    """The others sign what they were told; the victim signed something else, so nobody gives shares of its mask."""
    evil = Evil(parties, policy=replace(SECURE, cohort_gap=0))
    known = Roster("once-1", evil.offers("once-1"))
    letters = {p: evil.run_select(p, "dropout_recovery.share", known).release.shares for p in evil.names}
    victim, few = "p00", evil.names[: roster.threshold(parties)]
    told = evil.moments(victim, cohort=few, masks="once-1")
    if parties == 4:  # three of four is as few as may be told
        assert isinstance(told, SealedAnswer)
    for party in evil.names[1:]:
        assert isinstance(evil.moments(party, masks="once-1"), SealedAnswer)
    live = evil.names
    from fedclust.privacy.dropout_recovery import Respondents, UnmaskRequest

    signed = {p: evil.run_select(p, "dropout_recovery.consent", Respondents("once-1", live)) for p in evil.names}
    proof = {p: reply.release.signature for p, reply in signed.items() if isinstance(reply, SealedAnswer)}
    for party in evil.names[1:]:
        mail = {sender: own[party] for sender, own in letters.items()}
        assert evil.run_select(party, "dropout_recovery.unmask", UnmaskRequest("once-1", proof, mail)) == Refusal(
            party, "keys-refused"
        )


def test_a_victim_told_too_small_a_cohort_does_not_answer():
    evil = Evil(10)
    known = Roster("once-1", evil.offers("once-1"))
    for party in evil.names:
        evil.run_select(party, "dropout_recovery.share", known)
    assert evil.moments("p00", cohort=("p00", "p01", "p02"), masks="once-1") == Refusal("p00", "keys-refused")


def test_ever_closer_bounds_do_not_show_a_largest_value():
    """The first value beyond a bound is the last thing a site says in the study."""
    evil = Evil(4)
    evil.agree()
    narrow = make_question(View(np.zeros(2, np.int32), np.zeros(2), np.full(2, 0.5)), np.zeros((2, 2)), 1.0)
    assert evil.moments("p00", ask=narrow) == Refusal("p00", "out-of-bounds")
    assert evil.moments("p00") == Refusal("p00", "out-of-bounds")
    evil.run = f"another-{evil.run.partition('-')[2]}" if "-" in evil.run else evil.run
    assert evil.moments("p00") == Refusal("p00", "out-of-bounds")


def test_rules_count_over_all_runs_of_a_study():
    evil = Evil(4, policy=replace(PROFILES["none"], max_calls=3))
    for number in range(4):
        evil.run = f"run{number}-0123456789abcdef"
        reply = evil.run_select("p00", "bounds.count_rows", _columns(), "total")
        assert isinstance(reply, SealedAnswer) == (number < 3)


def _columns():
    from fedclust.questions.bounds import ColumnsQuestion

    return ColumnsQuestion(2, "refuse")


def test_a_second_lead_is_refused():
    from fedclust.privacy.blind import blind_aggregation

    evil = Evil(4, policy=PROFILES["none"], aggregation="blind")
    fc.KMeans(2, init=[[0, 0], [8, 8]], max_iter=1).fit(evil.fed)
    evil.step = 1000
    vault = evil.fed.local_sites["p02"].gate.vault_for(evil.run)
    key, about = blind_aggregation._derive_group_message_key(vault, "lasting-1", "p01", way=("p02", "p01"))
    own = blind_aggregation.GroupKeyMessage("p02", "lasting-1", keys.encrypt(key, bytes(32), about))
    assert evil.run_select("p01", "blind_aggregation.group", own) == Refusal("p01", "keys-refused")


def test_an_encrypted_question_for_other_parties_is_refused():
    evil = Evil(5, policy=PROFILES["none"], aggregation="blind")
    seen = []

    class Watch:
        parties = evil.names

        def exchange(self, calls, *, timeout, quorum):
            seen.append(calls)
            return evil.fed.engine.exchange(calls, timeout=timeout, quorum=quorum)

    evil.fed.use_engine(Watch())
    fc.KMeans(2, init=[[0, 0], [8, 8]], max_iter=1).fit(evil.fed)
    call = next(calls["p00"] for calls in reversed(seen) if calls["p00"].handler == "blind_aggregation.add")
    fresh = Evil(5, policy=PROFILES["none"], aggregation="blind")
    assert fresh.names == evil.names
    for changed in (replace(call, cohort=evil.names[:3]), replace(call, step=call.step + 1)):
        desk = evil.fed.local_sites["p00"]
        desk._last_answer = None
        reply = desk.answer(changed)
        assert isinstance(reply, Refusal)
    # The code is encrypted as well.
    assert reply.code not in ("keys-refused", "step-reused")


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_a_run_that_made_new_keys_on_the_way_is_resumed(aggregation, tmp_path):
    rng = np.random.default_rng(1)
    rows = {f"p{i}": rng.normal(size=(12, 1)) + 8 * (np.arange(12) % 2)[:, None] for i in range(3)}

    def fit(plan):
        with fc.Federation.local(rows, aggregation=aggregation, run=tmp_path, early_stopping=True) as fed:
            fed.use_engine(Faulty(fed.engine, plan))
            return fc.FuzzyCMeans(2, init=[[0], [8]], tol=None, max_iter=20).fit(fed).final_objective

    expected = fc.FuzzyCMeans(2, init=[[0], [8]], tol=None, max_iter=20).fit(fc.Federation.local(rows)).final_objective
    with pytest.raises(fc.FedclustError):
        fit(lambda step, party: "silent" if party == "p1" and (step == 7 or step > 14) else None)
    assert fit(lambda *_: None) == expected
