"""Masked sums are the plain ones; what travels says nothing; drop-outs are recovered or refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedclust as fc
from fedclust.core.envelope import Refusal, SealedAnswer
from fedclust.core.errors import KeysRefused, QuorumLost, RunFailed, StudyError
from fedclust.core.ring import Exact
from fedclust.core.ring import total as ring_total
from fedclust.privacy import dropout_recovery, keys, masks, shamir
from fedclust.testing.conformance import make_sites
from fedclust.testing.faulty_engines import Faulty, Recorder

PARTS = make_sites(parties=5, rows=100)
START = np.concatenate(list(PARTS.values()))[[3, 40, 80]]


def fitted(aggregation, kind=fc.FuzzyCMeans, plan=None, quorum="all", parts=None, **options):
    fed = fc.Federation.local(parts or PARTS, aggregation=aggregation, **options)
    if plan is not None:
        fed.use_engine(Faulty(fed.engine, plan))
    return kind(3, init=START, quorum=quorum).fit(fed)


def same(a, b):
    return (
        np.array_equal(a.cluster_centers_, b.cluster_centers_)
        and a.final_objective == b.final_objective
        and a.history_ == b.history_
        and np.array_equal(a.cluster_sizes_, b.cluster_sizes_)
    )


# ---- the parts


@given(st.binary(min_size=1, max_size=64), st.integers(1, 9), st.data())
def test_any_needed_shares_give_the_secret_back(secret, count, data):
    needed = data.draw(st.integers(1, count))
    shares = shamir.split(secret, count, needed=needed)
    chosen = data.draw(st.permutations(range(count)))[:needed]
    assert shamir.join_shares({i + 1: shares[i] for i in chosen}, length=len(secret)) == secret


def test_fewer_shares_than_needed_fit_every_secret():
    """With one share too few, for any other secret there is a last share that would give it: nothing is learnt."""
    shares = shamir.split(b"\x07", 3, needed=2)
    for other in (0, 1, 200):
        value = int.from_bytes(shares[0], "big")
        slope = (value - other) % shamir.SECRET_PRIME
        forged = ((other + 2 * slope) % shamir.SECRET_PRIME).to_bytes(shamir.SHARE_BYTES, "big")
        assert shamir.join_shares({1: shares[0], 2: forged}, length=1) == bytes([other])


def test_shamir_by_hand():
    """The line 5 + 3x: shares 8 and 14 at places 1 and 3."""
    shares = {1: (8).to_bytes(shamir.SHARE_BYTES, "big"), 3: (14).to_bytes(shamir.SHARE_BYTES, "big")}
    assert shamir.join_shares(shares, length=1) == b"\x05"


@settings(max_examples=30)
@given(st.integers(2, 70), st.integers(1, 5))
def test_pairwise_masks_vanish_from_the_sum(count, cells):
    parties = [f"p{i}" for i in range(count)]
    salt = b"salt"
    shared = {frozenset(pair): keys.digest_parts(*sorted(pair)) for pair in itertools.combinations(parties, 2)}
    terms = []
    for party in parties:
        own = {other: shared[frozenset((party, other))] for other in masks.neighbours(party, parties, salt)}
        terms.append(Exact(masks.pairwise(party, own, cells).limbs, np.zeros((), np.int32)))
    assert not ring_total(terms).limbs.any()
    assert all(term.limbs.any() for term in terms)


def test_neighbours_in_a_crowd_are_mutual_and_few():
    parties = [f"p{i}" for i in range(60)]
    near = {party: set(masks.neighbours(party, parties, b"x")) for party in parties}
    assert {len(own) for own in near.values()} == {2 * masks.NEIGHBORS_PER_SIDE}
    assert all(party in near[other] for party, own in near.items() for other in own)


def test_a_mask_taken_is_a_mask_added_back():
    mask = masks.Mask(4)
    mask.add_streams(bytes(32))
    mask.subtract_streams(b"\x01" * 32)
    back = masks.add_limbs(mask.limbs, masks.negate_limbs(mask.limbs))
    assert not back.any()


# ---- equality with plain runs


@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
@pytest.mark.parametrize("aggregation", ["secure", "blind"])
@pytest.mark.parametrize("wire", [False, True])
def test_masked_runs_are_plain_runs_bit_for_bit(kind, aggregation, wire):
    assert same(fitted("plain", kind), fitted(aggregation, kind, wire=wire, early_stopping=True))


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_column_splits_agree_too(aggregation):
    X = np.concatenate(list(PARTS.values()))
    parts = {"a": X[:, :1], "b": X[:, 1:2], "c": X[:, 2:]}
    plain, hidden = (fitted(mode, parts=parts, split="columns", early_stopping=True) for mode in ("plain", aggregation))
    assert same(plain, hidden)
    assert np.array_equal(plain.labels_, hidden.labels_)


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_standardising_starts_indices_and_the_choice_of_k_agree_too(aggregation):
    def chosen(mode):
        fed = fc.Federation.local(PARTS, aggregation=mode, early_stopping=True)
        model = fc.FuzzyCMeans(3, scale="standardise", init="careful", random_state=1).fit(fed)
        found = fc.select_k(fc.FuzzyCMeans(random_state=0), fed, range(2, 4))
        return model.cluster_centers_.tobytes(), fc.indices.xie_beni(model, fed), found.k, found.model.final_objective

    assert chosen("plain") == chosen(aggregation)


def test_a_crowd_shares_masks_with_neighbours_only_and_agrees():
    X = np.concatenate(list(PARTS.values()))
    parts = {f"p{i}": X[i : i + 1] for i in range(60)}
    parts["p59"] = X[59:]
    assert same(fitted("plain", parts=parts), fitted("secure", parts=parts))


def test_a_blind_run_goes_on_to_its_last_round():
    fed = fc.Federation.local(PARTS, aggregation="blind")
    model = fc.KMeans(3, init=START, max_iter=17).fit(fed)
    assert model.n_iter_ == 17


# ---- what the coordinator sees


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_no_answer_that_is_summed_shows_its_numbers(aggregation):
    """The high limbs of every masked number look random, where plain ones are nearly all zeros or ones."""
    fed = fc.Federation.local(PARTS, aggregation=aggregation, early_stopping=True)
    recorder = Recorder(fed.engine)
    fed.use_engine(recorder)
    fc.FuzzyCMeans(3, init=START).fit(fed)
    high = np.concatenate([own for _, replies in recorder.exchanges for own in _high_limbs(replies)])
    assert len(high) > 500
    assert abs(np.unpackbits(high.view(np.uint8)).mean() - 0.5) < 0.02


def _high_limbs(replies):
    for reply in replies.values():
        for name, disclosure in reply.release.schema().items():
            if disclosure.combine == "sum":
                yield getattr(reply.release, name).limbs.reshape(-1, 2)[:, 1].copy()


def test_a_blind_coordinator_sees_the_same_lengths_for_other_rows_and_bytes_that_look_random():
    def transcript(seed):
        rng = np.random.default_rng(seed)
        parts = {f"p{i}": rng.normal(size=(30, 2)) + 6 * (np.arange(30) % 3)[:, None] for i in range(4)}
        fed = fc.Federation.local(parts, aggregation="blind", wire=True)
        recorder = Recorder(fed.engine)
        fed.use_engine(recorder)
        start = np.array([[0.0, 0], [6, 6], [12, 12]])
        fc.FuzzyCMeans(3, init=start, max_iter=6, bounds=(-8, 20)).fit(fed)
        return recorder.exchanges

    first, second = transcript(1), transcript(2)
    lengths = [
        [
            [(call.handler, len(call.wire_bytes)) for call in calls.values()]
            + [len(r.wire_bytes) for r in replies.values()]
            for calls, replies in seen
        ]
        for seen in (first, second)
    ]
    assert lengths[0] == lengths[1]
    handlers = {call.handler for calls, _ in first for call in calls.values()}
    assert (
        handlers
        == {
            "roster.offer",
            "roster.accept",
            "blind_aggregation.group",
            "blind_aggregation.add",
            "blind_aggregation.reply",
        }
        & handlers
    )
    assert "blind_aggregation.add" in handlers
    texts = {
        c.message.text
        for calls, _ in first
        for c in calls.values()
        if c.handler in ("blind_aggregation.add", "blind_aggregation.reply")
    }
    sums = [
        r.release.numbers.limbs.tobytes()
        for _, rs in first
        for r in rs.values()
        if r.handler == "blind_aggregation.add"
    ]
    data = b"".join([*texts, *sums])
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    expected = counts.sum() / 256
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 255 + 6 * np.sqrt(2 * 255)  # six standard deviations


# ---- drop-outs


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("fault", ["silent", "lost"])
def test_where_all_must_answer_a_lost_step_is_repeated_with_fresh_masks(aggregation, step, fault):
    plan = lambda at, party: fault if (at, party) == (step, "p1") else None
    model = fitted(aggregation, plan=plan, early_stopping=True)
    assert same(model, fitted("plain"))
    assert model.notes_ == []


def test_a_party_that_stays_away_ends_the_run_by_name():
    with pytest.raises(QuorumLost, match=r"p1: no answer") as caught:
        fitted("secure", plan=lambda at, party: "silent" if party == "p1" and at > 6 else None)
    assert caught.value.missing == {"p1": "no-answer"}


@pytest.mark.parametrize("fault", ["silent", "lost"])
@pytest.mark.parametrize("step", range(1, 12))
def test_drop_outs_up_to_the_threshold_are_recovered(step, fault):
    """A party that leaves at whatever step: the centres are those of a plain run over the others."""
    plan = lambda at, party: fault if party == "p1" and at >= step else None
    hidden = fitted("secure", plan=plan, quorum=0.8)
    assert any("p1" in note for note in hidden.notes_)
    rest = {party: rows for party, rows in PARTS.items() if party != "p1"}
    plain = fitted("plain", parts=rest)
    assert np.array_equal(hidden.cluster_centers_, plain.cluster_centers_)
    if step == 1:
        assert hidden.n_iter_ == plain.n_iter_
        assert np.array_equal(hidden.cluster_sizes_, plain.cluster_sizes_)
        assert [r["shift"] for r in hidden.history_] == [r["shift"] for r in plain.history_]
        # The objective is summed at a coarser unit where someone is missing, so its last digits may differ.
        assert hidden.final_objective == pytest.approx(plain.final_objective, rel=1e-12)


@pytest.mark.parametrize("parties", [3, 4, 5, 6, 25, pytest.param(60, marks=pytest.mark.long)])
def test_as_many_as_may_leave_leave_at_every_stage(parties, monkeypatch):
    """One after the other, so that each stage of a sum loses someone; past the threshold the run ends by name."""
    if parties == 25:  # a crowd, of which each shares masks with a few neighbours only
        monkeypatch.setattr(masks, "MAX_FULL_PAIRING_PARTIES", 20)
        monkeypatch.setattr(masks, "NEIGHBORS_PER_SIDE", 7)
    may = parties - dropout_recovery.threshold(parties)
    X = np.concatenate(list(PARTS.values()))
    parts = {f"p{i}": X[i % 90 : i % 90 + 3] for i in range(parties)}
    gone = {f"p{i}": 4 + i % 5 for i in range(may)}
    model = fitted("secure", parts=parts, quorum=dropout_recovery.threshold(parties), plan=_leaving(gone))
    assert np.isfinite(model.cluster_centers_).all()
    gone[f"p{may}"] = 9
    with pytest.raises(QuorumLost, match=f"but {dropout_recovery.threshold(parties)} are required"):
        fitted("secure", parts=parts, quorum=dropout_recovery.threshold(parties), plan=_leaving(gone))


def _leaving(gone):
    return lambda at, party: "silent" if at >= gone.get(party, 1_000_000) else None


def test_past_the_threshold_the_refusal_is_clear():
    with pytest.raises(QuorumLost, match="3 of 5 parties answered, but 4 are required"):
        fitted("secure", plan=lambda _, party: "silent" if party in ("p1", "p2") else None, quorum=0.5)


def test_two_sites_cannot_hide_from_each_other():
    with pytest.raises(StudyError, match="at least three sites"):
        fc.Federation.local({"a": np.zeros((4, 1)), "b": np.ones((4, 1))}, aggregation="secure")


# ---- attacks by the coordinator


def conversation(quorum=0.8, parties=5):
    """A recoverable run, with each step's calls, desks still at hand."""
    parts = make_sites(parties=parties, rows=20 * parties)
    fed = fc.Federation.local(parts, aggregation="secure")
    recorder = Recorder(fed.engine)
    fed.use_engine(recorder)
    fc.KMeans(3, init=START, max_iter=1, bounds=(-9, 30), quorum=quorum).fit(fed)
    return fed, recorder.exchanges


def test_an_own_answer_cannot_be_had_of_a_sum():
    fed, seen = conversation()
    calls, _ = next((c, r) for c, r in seen if next(iter(c.values())).handler == "row_split.moments")
    call = calls["p0"]
    desk = fed.local_sites["p0"]
    from dataclasses import replace

    reply = desk.answer(replace(call, step=call.step + 1000, want="each", masks=None))
    assert reply == Refusal("p0", "not-a-sum")


@pytest.mark.parametrize("who", range(5))
def test_contradictory_unmasking_requests_are_refused(who):
    """Every site, told first one list of who answered and then every other one, signs the first alone."""
    from dataclasses import replace

    fed, seen = conversation()
    desk = fed.local_sites[f"p{who}"]
    at = max(i for i, (calls, _) in enumerate(seen) if next(iter(calls.values())).handler == "dropout_recovery.consent")
    call = seen[at][0][f"p{who}"]
    everyone, step = call.message.parties, call.step
    for size in range(1, 6):
        for live in itertools.combinations(everyone, size):
            step += 100
            reply = desk.answer(replace(call, step=step, message=replace(call.message, parties=live)))
            if live == everyone:
                assert isinstance(reply, SealedAnswer)
            else:
                assert reply == Refusal(f"p{who}", "keys-refused")


def test_forged_and_replayed_signatures_do_not_open_a_sum():
    from dataclasses import replace

    fed, seen = conversation()
    rounds = [(c, r) for c, r in seen if next(iter(c.values())).handler == "dropout_recovery.unmask"]
    calls, replies = rounds[-1]
    call, desk = calls["p0"], fed.local_sites["p0"]
    old = rounds[0][0]["p0"].message.signatures
    for number, signatures in enumerate(
        [
            {},
            old,
            {p: bytes(64) for p in call.message.signatures},
            dict.fromkeys(call.message.signatures, call.message.signatures["p0"]),
            dict(list(call.message.signatures.items())[:3]),
        ]
    ):
        forged = replace(call, step=call.step + 10 + number, message=replace(call.message, signatures=signatures))
        assert desk.answer(forged) == Refusal("p0", "keys-refused")
    assert isinstance(desk.answer(replace(call, step=call.step + 50)), SealedAnswer)
    assert all(set(r.release.own) & set(r.release.gone) == set() for r in replies.values())


def test_keys_that_an_identity_did_not_sign_are_refused():
    from dataclasses import replace

    fed, seen = conversation(quorum="all")
    calls = next(c for c, _ in seen if next(iter(c.values())).handler == "roster.accept")
    call = calls["p0"]
    for party in call.message.offers:
        offers = dict(call.message.offers)
        offers[party] = replace(offers[party], mask=keys.new_pair()[1])
        forged = replace(call, step=call.step + 1000, message=replace(call.message, name="lasting-1", offers=offers))
        assert fed.local_sites["p0"].answer(forged) == Refusal("p0", "keys-refused")


def test_a_lasting_key_is_never_shared():
    from dataclasses import replace

    fed, seen = conversation(quorum="all")
    calls = next(c for c, _ in seen if next(iter(c.values())).handler == "roster.accept")
    call = replace(calls["p0"], handler="dropout_recovery.share", step=10_000)
    assert fed.local_sites["p0"].answer(call) == Refusal("p0", "keys-refused")


def test_keys_for_one_sum_serve_one_sum():
    from dataclasses import replace

    fed, seen = conversation()
    calls, _ = next((c, r) for c, r in reversed(seen) if next(iter(c.values())).handler == "row_split.moments")
    again = replace(calls["p0"], step=calls["p0"].step + 1000)
    assert fed.local_sites["p0"].answer(again) == Refusal("p0", "keys-refused")


@pytest.mark.parametrize("parties", [3, 4, 5, 6])
def test_a_coordinator_with_fewer_than_the_threshold_of_sites_cannot_open_one_sites_answer(parties):
    """All subsets: what they pool of shares, keys and masks does not remove a stranger's mask."""
    fed, seen = conversation(quorum=dropout_recovery.threshold(parties), parties=parties)
    names = fed.parties
    masked = next(r for c, r in reversed(seen) if next(iter(c.values())).handler == "row_split.moments")
    plain_fed = fc.Federation.local(make_sites(parties=parties, rows=20 * parties))
    plain = Recorder(plain_fed.engine)
    plain_fed.use_engine(plain)
    fc.KMeans(3, init=START, max_iter=1, bounds=(-9, 30)).fit(plain_fed)
    truth = next(r for c, r in reversed(plain.exchanges) if next(iter(c.values())).handler == "row_split.moments")
    share_calls, shared = next(
        (c, r) for c, r in reversed(seen) if next(iter(c.values())).handler == "dropout_recovery.share"
    )
    opened = next(r for c, r in reversed(seen) if next(iter(c.values())).handler == "dropout_recovery.unmask")
    offers = next(iter(share_calls.values())).message
    for k in range(min(dropout_recovery.threshold(parties), parties - 1)):
        for bad in itertools.combinations(names, k):
            for victim in set(names) - set(bad):
                assert not _recovered(fed, bad, victim, offers, shared, opened, masked, truth)


def _recovered(fed, bad, victim, offers, shared, opened, masked, truth):
    """The coordinator takes from a victim's answer every mask that it and its friends can work out."""
    name, everyone = offers.name, tuple(offers.offers)
    run = fed.run_id
    cells = masks.count_cells(masked[victim].release)
    mask = masks.Mask(cells)
    holders = sorted(everyone)
    own = {holders.index(h) + 1: r.release.own[victim] for h, r in opened.items() if victim in r.release.own}
    mask.subtract_streams(
        keys.derive_key(shamir.join_shares(own, length=32), "own", name)
    )  # the own mask is opened to the coordinator
    for other in everyone:
        if other == victim:
            continue
        if other in bad:
            vault = fed.local_sites[other].gate.vault_for(run)
            secret = vault.get(f"{name}.mask")
            info = keys.frame_parts("mask", name) + dropout_recovery.pair_label(victim, other)
            key = keys.expand_key(keys.derive_shared_secret(secret, offers.offers[victim].mask), info)
            (mask.subtract_streams if victim < other else mask.add_streams)(key)
    # Shares of the others' mask keys that the friends hold are too few: joined they give nothing that fits.
    kept = {}
    for friend in bad:
        vault = fed.local_sites[friend].gate.vault_for(run)
        for sender in everyone:
            about = keys.frame_parts("shares", run, name, sender, friend)
            shared_key = keys.derive_shared_secret(vault.get(f"{name}.message"), offers.offers[sender].message)
            text = keys.decrypt(keys.derive_key(shared_key, about), shared[sender].release.shares[friend], about)
            kept.setdefault(sender, {})[holders.index(friend) + 1] = text[shamir.SHARE_BYTES :]
    for other in set(everyone) - set(bad) - {victim}:
        try:
            guess = shamir.join_shares(kept.get(other, {}), length=32) if kept.get(other) else None
        except KeysRefused:
            continue
        assert guess is None or keys.public_from_private(guess) != offers.offers[other].mask
    return masks.add_mask(masked[victim].release, mask.limbs).mass == truth[victim].release.mass


def test_with_one_honest_site_left_the_rest_is_known_anyway():
    """The test above can fail: friends of all the others open a victim's answer, as nothing can prevent."""
    fed, seen = conversation(quorum=3, parties=3)
    names = fed.parties
    masked = next(r for c, r in reversed(seen) if next(iter(c.values())).handler == "row_split.moments")
    plain_fed = fc.Federation.local(make_sites(parties=3, rows=60))
    plain = Recorder(plain_fed.engine)
    plain_fed.use_engine(plain)
    fc.KMeans(3, init=START, max_iter=1, bounds=(-9, 30)).fit(plain_fed)
    truth = next(r for c, r in reversed(plain.exchanges) if next(iter(c.values())).handler == "row_split.moments")
    share_calls, shared = next(
        (c, r) for c, r in reversed(seen) if next(iter(c.values())).handler == "dropout_recovery.share"
    )
    opened = next(r for c, r in reversed(seen) if next(iter(c.values())).handler == "dropout_recovery.unmask")
    offers = next(iter(share_calls.values())).message
    assert _recovered(fed, names[1:], names[0], offers, shared, opened, masked, truth)


def test_wrong_shares_end_the_run(monkeypatch):
    """A key that does not come back is noticed; the run ends without a name."""
    honest = shamir.split
    monkeypatch.setattr(shamir, "split", lambda _, n, needed: honest(bytes(32), n, needed=needed))
    with pytest.raises(RunFailed, match="do not combine to the expected key"):
        fitted("secure", plan=lambda at, party: "silent" if party == "p1" and at == 3 else None, quorum=0.8)
