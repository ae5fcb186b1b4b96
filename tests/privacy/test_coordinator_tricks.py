"""Tricks of a coordinator that never forges a message: it sends true ones to the wrong site, or many that add up."""

from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from evil import ASK, Evil
from fedclust.algorithms.cmeans.column_split import Preparation
from fedclust.app.serve import open_session
from fedclust.core import wire
from fedclust.core.envelope import Call, Refusal, SealedAnswer
from fedclust.core.errors import KeysRefused, StudyError
from fedclust.core.site_interface import RowOrder, View
from fedclust.privacy import keys, roster
from fedclust.privacy.blind import blind_aggregation
from fedclust.privacy.padding import Padding, pad_text
from fedclust.privacy.roster import KeyOffer, KeyRequest, Roster
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.questions.choice_of_k.k_range import LocalKQuestion
from fedclust.questions.label_agreement import KnownClasses
from fedclust.site.policy import PROFILES
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.site_file import read_site_file
from fedclust.site.sources import open_source


def test_a_slice_of_its_own_for_one_site_is_refused_where_all_hold_all_columns():
    # Masked distances to centres that are moved at one site only would differ by that site's rows.
    tricky = Evil(5)
    assert (
        tricky.run_select("p03", "column_split.prepare", Preparation(centers=np.zeros((1, 2)))).code
        == "handler-not-allowed"
    )


def test_classes_from_the_coordinator_are_refused_by_every_profile():
    # One row in a class of its own, and masked contingency tables over a grid of centres, would find that row.
    for name, policy in PROFILES.items():
        reply = Evil(3, policy=policy, aggregation="plain").run_select(
            "p01", "label_agreement.remember_truth", KnownClasses(np.zeros(40, np.int64), "refuse")
        )
        assert isinstance(reply, SealedAnswer) if name == "none" else reply.code == "handler-not-allowed"


def test_sums_over_sets_that_overlap_crosswise_are_not_opened():
    # Any two lines of the Fano plane differ by four sites, yet seven such sums give each site's own.
    tricky = Evil(10)
    lines = [(0, 1, 2), (0, 3, 4)]
    outcomes = []
    for number, line in enumerate(lines):
        name = f"once-{number}"
        assert all(isinstance(r, SealedAnswer) for r in tricky.answered_once(name, tricky.names).values())
        live = [p for i, p in enumerate(tricky.names) if i not in line]
        outcomes.append(tricky.consents(name, live))
    assert all(isinstance(reply, SealedAnswer) for reply in outcomes[0].values())
    both = set(outcomes[0]) & set(outcomes[1])
    assert both
    assert {outcomes[1][party].code for party in both} == {"cohort-too-close"}


def test_a_smaller_set_within_an_earlier_one_is_opened():
    tricky = Evil(12)
    for number, left in enumerate((0, 3)):
        name = f"once-{number}"
        tricky.answered_once(name, tricky.names)
        assert all(isinstance(r, SealedAnswer) for r in tricky.consents(name, tricky.names[left:]).values())


@pytest.mark.parametrize("offered", [7, 9])
def test_two_thirds_are_of_all_sites_not_of_those_that_offered_keys(offered):
    # Of 10 sites 7 must sign; were it two thirds of 7, two lists of 5 could be signed with three friends in both.
    tricky = Evil(10)
    cohort = tricky.names[:offered]
    tricky.answered_once("once-1", cohort)
    too_few = tricky.consents("once-1", cohort[:6])
    assert {reply.code for reply in too_few.values()} == {"keys-refused"}


def test_a_key_copied_but_for_the_bit_that_is_ignored_is_refused():
    tricky = Evil(3)
    offers = {p: tricky.run_select(p, "roster.offer", KeyRequest("lasting-1")).release for p in tricky.names}
    vault = tricky.fed.local_sites["p02"].gate.vault_for(tricky.run)
    copied = offers["p00"].mask[:-1] + bytes([offers["p00"].mask[-1] ^ 0x80])
    about = roster._key_statement(tricky.run, "lasting-1", "p02", copied, offers["p02"].message)
    offers["p02"] = KeyOffer(copied, offers["p02"].message, vault.sign(about))
    reply = tricky.run_select("p01", "roster.accept", Roster("lasting-1", offers))
    assert reply == Refusal("p01", "keys-refused")


def test_a_site_that_does_not_lead_cannot_send_encrypted_questions():
    tricky = Evil(4, policy=replace(PROFILES["standard"], aggregation="blind"), aggregation="blind")
    fc.KMeans(2, init=[[0, 0], [8, 8]], max_iter=2).fit(tricky.fed)
    friend = tricky.fed.local_sites["p02"].gate.vault_for(tricky.run)
    common, name = friend.get("group"), friend.get("group.name").decode()
    inner = pad_text(
        wire.encode(blind_aggregation.QuestionContent("row_split.moments", "total", name, Padding(), wire.encode(ASK))),
        0,
    )
    place = blind_aggregation._question_context(tricky.run, 900, "blind_aggregation.add", tricky.names, "")
    salt = b"s" * 16
    text = keys.encrypt(keys.derive_key(common, "question", tricky.run, 900, salt), inner, place)
    forged = blind_aggregation.EncryptedQuestion(False, salt, text, friend.sign(place + text))
    reply = tricky.run_select("p00", "blind_aggregation.add", forged, "total", step=900)
    assert isinstance(reply, Refusal)
    assert (
        tricky.fed.local_sites["p00"]
        .last_error.args[0]
        .startswith("the encrypted question does not carry a valid signature of the lead")
    )


def test_where_all_is_encrypted_even_facts_do_not_leave_in_the_clear():
    tricky = Evil(3, policy=replace(PROFILES["standard"], aggregation="blind"), aggregation="blind")
    reply = tricky.run_select("p00", "k_range.own_k", LocalKQuestion(View(np.full(2, 5, np.int32))))
    assert reply.code == "aggregation-too-weak"


def test_a_site_with_rules_serves_a_study_it_was_told_or_has_approved_only(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 20)
    (tmp_path / "site.toml").write_text(
        'name = "north"\nsource = "rows.csv"\nstate = "state"\n[policy]\nprofile = "standard"\n'
    )
    with pytest.raises(StudyError, match="give the study that this site serves"):
        open_session(read_site_file(tmp_path / "site.toml"))
    (tmp_path / "study.toml").write_text('name = "s"\n')
    assert open_session(read_site_file(tmp_path / "site.toml"), study=tmp_path / "study.toml")


def test_a_sum_with_and_without_the_rows_that_have_gaps_is_given_once(tmp_path):
    rows = np.vstack([np.random.default_rng(0).normal(size=(40, 2)), [[np.nan, 3.0]]])
    desk = SiteServer(SiteData("here", open_source(rows, site="here")), PROFILES["cms"], folder=tmp_path)
    cohort = ("here", "there", "yonder")

    def code(step, missing):
        reply = desk.answer(Call("1-s", step, "bounds.count_rows", ColumnsQuestion(2, missing), "total", cohort))
        return reply.code if isinstance(reply, Refusal) else None

    assert code(1, "drop") is None
    assert code(2, "partial") == "other-rows"
    again = SiteServer(SiteData("here", open_source(rows, site="here")), PROFILES["cms"], folder=tmp_path)
    reply = again.answer(Call("2-s", 1, "bounds.count_rows", ColumnsQuestion(2, "partial"), "total", cohort))
    assert reply == Refusal("here", "other-rows")


def test_rows_that_not_all_sites_have_are_not_read_in_a_study_of_common_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    desk = SiteServer(
        SiteData("here", open_source(rows, site="here")), PROFILES["cms"], folder=tmp_path, needs_alignment=True
    )
    assert desk.answer(Call("1-s", 1, "row_split.moments", ASK, "total", ("here", "b", "c"))).code == "not-aligned"


def test_another_alignment_in_the_same_study_is_refused(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    desk = SiteServer(SiteData("here", open_source(rows, site="here")), PROFILES["cms"], folder=tmp_path)
    desk._save_order("1-s", RowOrder(np.arange(30), b"k"))
    desk._save_order("2-s", RowOrder(np.arange(30)[::-1], b"k"))
    desk._save_order("1-other", RowOrder(np.arange(29), b"k"))
    with pytest.raises(KeysRefused, match="the rows that all sites have in common differ"):
        desk._save_order("3-s", RowOrder(np.arange(29), b"k"))
