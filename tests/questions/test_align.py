"""Rows that sites have in common, found without showing an id, clustered as if they had been matched beforehand."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedclust as fc
from fedclust.app.audit.observer_record import record_federation
from fedclust.cli.main import main
from fedclust.core import wire
from fedclust.core.effects import Ask, collect_messages, forward_messages
from fedclust.core.errors import DataError, QuorumLost, StudyError
from fedclust.core.journal import ANSWER_RECORD, QUESTION_RECORD, Journal
from fedclust.questions import alignment
from fedclust.site.policy import PROFILES
from fedclust.testing.faulty_engines import Faulty

NAMES = np.array([f"patient-{i:03d}" for i in range(60)])
HELD = {"clinic": (range(50), 3), "laboratory": (range(10, 60), 0), "register": (range(12, 55), 4)}


def tables(parties, names=NAMES, seed=0):
    """Two columns at each site, of rows that overlap partly, in orders of their own, with strange second rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 6)) + (np.arange(60) % 3)[:, None] * 6.0
    found = {}
    for i, party in enumerate(list(HELD)[:parties]):
        held, twice = HELD[party]
        at = rng.permutation(list(held))
        rows = np.concatenate([at, at[:twice]])
        values = X[rows][:, 2 * i : 2 * i + 2].copy()
        values[len(at) :] += 1000.0
        found[party] = pd.DataFrame({"who": names[rows], f"{party}.a": values[:, 0], f"{party}.b": values[:, 1]})
    return found


def matched_before(parts):
    """The same tables as someone who may see all ids would have matched them."""
    once = {party: table.drop_duplicates("who") for party, table in parts.items()}
    common = set.intersection(*(set(table["who"]) for table in once.values()))
    return {party: table[table["who"].isin(common)] for party, table in once.items()}


def joined(parts, **options):
    return fc.Federation.local(parts, split="columns", id="who", **options)


def aligned(parts, **options):
    return joined(parts, align="psi", **{"duplicates": "first", **options})


def same(a, b):
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.array_equal(a.labels_, b.labels_)
    assert (a.history_, a.final_objective, a.ids_) == (b.history_, b.final_objective, b.ids_)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("method", [fc.KMeans, fc.FuzzyCMeans])
def test_aligned_sites_cluster_like_sites_that_were_matched_before(parties, wire, method):
    parts = tables(parties)
    model = method(3, random_state=1).fit(aligned(parts, wire=wire))
    same(model, method(3, random_state=1).fit(joined(matched_before(parts))))
    assert model.ids_ == list(NAMES[10:50] if parties == 2 else NAMES[12:50])


def test_masked_sums_change_nothing():
    parts = tables(3)
    model = fc.KMeans(3, random_state=1).fit(aligned(parts, aggregation="secure"))
    same(model, fc.KMeans(3, random_state=1).fit(joined(matched_before(parts))))


def test_no_order_of_sites_or_rows_matters():
    parts = tables(3)
    other = {party: parts[party].drop_duplicates("who").iloc[::-1] for party in reversed(parts)}
    columns = [name for table in parts.values() for name in table if name != "who"]
    same(*(fc.KMeans(3, random_state=1).fit(aligned(p, order=columns)) for p in (parts, other)))


def test_repeated_ids_are_refused_with_their_count_at_the_site_alone():
    fed = aligned(tables(2), duplicates="refuse")
    with pytest.raises(DataError, match="'clinic' repeats an earlier id in 3 of its 53 rows"):
        fc.KMeans(3).fit(fed)
    replies = fed.local_sites["laboratory"].gate.ledger.entries
    assert all(
        "clinic" not in json.dumps(entry.__dict__) for entry in replies if entry.handler.startswith("alignment.")
    )


def test_integers_are_matched_however_they_are_written():
    parts = tables(2, names=np.arange(95, 155))
    parts["laboratory"]["who"] = [f" {one} " for one in parts["laboratory"]["who"]]
    model = fc.KMeans(3, random_state=1).fit(aligned(parts))
    assert [int(one) for one in model.ids_] == list(range(105, 145))  # by value: "99" is before "100"


def test_texts_are_matched_in_one_unicode_form():
    assert alignment.normalize_ids(np.array(["Zoe\u0308 "])) == alignment.normalize_ids(np.array(["Zo\u00eb"]))
    assert alignment.normalize_ids(np.array(["007"])) != alignment.normalize_ids(np.array([7]))


def test_rows_that_no_other_site_has_may_lack_values():
    parts = tables(2)
    parts["clinic"].loc[parts["clinic"]["who"] == "patient-001", "clinic.a"] = np.nan
    same(
        fc.KMeans(3, random_state=1).fit(aligned(parts)),
        fc.KMeans(3, random_state=1).fit(joined(matched_before(tables(2)))),
    )
    parts["clinic"].loc[parts["clinic"]["who"] == "patient-020", "clinic.a"] = np.nan
    with pytest.raises(DataError, match="missing"):
        fc.KMeans(3).fit(aligned(parts))


def test_nothing_in_common_is_said():
    parts = tables(2)
    parts["clinic"]["who"] = "x" + parts["clinic"]["who"]
    with pytest.raises(DataError, match="no row in common"):
        fc.KMeans(3).fit(aligned(parts))


def test_a_site_keeps_out_of_too_small_an_overlap():
    parts = tables(2)
    strict = replace(PROFILES["none"], min_rows=41)
    with pytest.raises(QuorumLost) as lost:
        fc.KMeans(3).fit(aligned(parts, policy={"clinic": "none", "laboratory": strict}))
    assert lost.value.missing == {"laboratory": "too-few-in-common"}


def test_a_site_compares_its_ids_with_no_list_of_everyone():
    parts = tables(2)
    many = pd.DataFrame({"who": [f"guess-{i}" for i in range(3000)], "clinic.a": 0.0})
    strict = replace(PROFILES["none"], max_ids=20.0)
    with pytest.raises(QuorumLost) as lost:
        fc.KMeans(3).fit(aligned({**parts, "clinic": many}, policy={"clinic": "none", "laboratory": strict}))
    assert lost.value.missing == {"laboratory": "too-many-ids"}


def test_the_ids_of_all_other_sites_together_are_limited():
    parts = tables(3)
    many = pd.DataFrame({"who": [f"guess-{i}" for i in range(700)], "clinic.a": 0.0})
    for most, code in ((20.0, "too-many-ids"), (40.0, "too-few-in-common")):  # the laboratory has 50 rows
        strict = replace(PROFILES["none"], max_ids=most, min_rows=5)
        with pytest.raises(QuorumLost) as lost:
            fc.KMeans(3).fit(
                aligned({**parts, "clinic": many}, policy={"clinic": "none", "laboratory": strict, "register": "none"})
            )
        assert lost.value.missing == {"laboratory": code}


def set_out(fed, duplicates="first"):
    """All lists have set out; they, and the ring's note."""
    ring = alignment.SiteRing(fed.parties, duplicates)
    return (yield from collect_messages(alignment.send_own_list, ring)), wire.encode(ring)


def tricked(trick, parties=3):
    """The codes with which sites refuse what a coordinator tries."""
    fed = aligned(tables(parties))
    fed._is_aligned = True  # the trick stands in for the alignment
    with pytest.raises(QuorumLost) as lost:
        fed.run(trick(fed))
    return lost.value.missing


@pytest.mark.parametrize("parties", [2, 3])
def test_a_site_passes_on_one_list_for_each_other_site_and_no_more(parties):
    # With further lists, the coordinator and the site before could try out every id there might be.
    def trick(fed):
        lists, note = yield from set_out(fed)
        for _ in fed.parties[1:]:
            further = yield from forward_messages(alignment.pass_list, {"laboratory": lists["laboratory"]}, note)
            assert set(further) == {fed.parties[2 % parties]}
        yield from forward_messages(alignment.pass_list, {"laboratory": lists["laboratory"]}, note)

    assert tricked(trick, parties) == {"laboratory": "keys-refused"}


def test_a_site_that_has_its_list_back_passes_on_no_more():
    def trick(fed):
        lists, note = yield from set_out(fed)
        first = lists
        for _ in fed.parties[1:]:
            lists = yield from forward_messages(alignment.pass_list, lists, note)
        back = {"laboratory": alignment.ReturnedList(lists["laboratory"], note)}
        yield Ask(alignment.return_tags, "each", messages=back, asked_once=True)
        yield from forward_messages(alignment.pass_list, {"laboratory": first["laboratory"]}, note)

    assert tricked(trick) == {"laboratory": "keys-refused"}


def test_a_list_that_comes_another_way_than_round_the_ring_is_refused():
    def other_ring(fed):
        lists, _ = yield from set_out(fed)
        turned = wire.encode(alignment.SiteRing(fed.parties[::-1], "first"))
        yield from forward_messages(alignment.pass_list, {"laboratory": lists["laboratory"]}, turned)

    def other_sender(fed):
        yield from set_out(fed)
        turned = alignment.SiteRing(fed.parties[::-1], "first")
        lists = yield from collect_messages(alignment.send_own_list, turned, among=("register",))
        yield from forward_messages(
            alignment.pass_list,
            {"laboratory": lists["laboratory"]},
            wire.encode(alignment.SiteRing(fed.parties, "first")),
        )

    assert tricked(other_ring) == {"laboratory": "keys-refused"}
    assert tricked(other_sender) == {"laboratory": "keys-refused"}


def test_a_site_compares_its_ids_so_often_and_no_more():
    once = replace(PROFILES["none"], max_alignments=1)
    fed = aligned(tables(2), policy=once)
    fc.KMeans(3).fit(fed)
    fed._is_aligned = False
    with pytest.raises(QuorumLost) as lost:
        fc.KMeans(3).fit(fed)
    assert set(lost.value.missing.values()) == {"too-many-alignments"}


def test_a_ring_without_everyone_is_refused():
    fed = aligned(tables(3))
    fed._is_aligned = True  # this one stands in for the alignment
    with pytest.raises(QuorumLost, match="enrolled"):
        fed.run(alignment.align_rows(("clinic", "laboratory")))


def test_neither_journal_nor_ledgers_hold_an_id_or_a_tag(tmp_path):
    parts, tags = tables(3), []
    with aligned(parts, run=tmp_path) as fed:
        plain = fed.engine.exchange

        def exchange(calls, **options):
            replies = plain(calls, **options)
            tags.extend(t.tobytes() for r in replies.values() for t in getattr(getattr(r, "release", 0), "tags", ()))
            return replies

        fed.engine.exchange = exchange
        fc.KMeans(3, random_state=1).fit(fed)
    assert len(tags) == 3 * 64
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in kept:
        data = path.read_bytes()
        assert not any(tag in data or tag.hex().encode() in data for tag in tags), path
        assert not any(name.encode() in data for name in NAMES), path
    journal = Journal(tmp_path / "journal")
    answered = [step for step in range(1, journal.last_step + 1) if journal.recall(ANSWER_RECORD, step) is not None]
    silent = [step for step in range(1, journal.last_step + 1) if journal.recall(QUESTION_RECORD, step) == b""]
    journal.close()
    assert silent
    assert not set(silent) & set(answered)


@pytest.mark.parametrize("step", range(1, 12))
def test_an_alignment_that_was_cut_short_begins_again(step, tmp_path):
    parts = tables(3)
    fed = aligned(parts, run=tmp_path)
    fed.use_engine(Faulty(fed.engine, lambda s, p: "silent" if (s, p) == (step, "laboratory") else None))
    with fed:
        try:
            fc.KMeans(3, random_state=1).fit(fed)
        except QuorumLost as lost:
            assert lost.missing == {"laboratory": "no-answer"}  # noqa: PT017 what matters comes after
    with aligned(parts, run=tmp_path) as again:
        model = fc.KMeans(3, random_state=1).fit(again)
    same(model, fc.KMeans(3, random_state=1).fit(joined(matched_before(parts))))


def test_what_cannot_be_aligned_is_refused_beforehand():
    parts = tables(3)
    for wrong, words in (
        ({"align": "guess"}, "'align' is 'guess'"),
        ({"duplicates": "last"}, "'duplicates' is 'last'"),
        ({"id": None}, "set id to the name of the id column"),
        ({"split": "rows"}, "column split"),
        ({"aggregation": "blind"}, "site that leads the run"),
    ):
        given = {"split": "columns", "id": "who", "align": "psi", **wrong}
        with pytest.raises(StudyError, match=words):
            fc.Federation.local(parts, **given)


STUDY = """
name = "joint"
split = "columns"
id = "who"
{align}
[cluster]
method = "k-means"
k = 3
"""


@pytest.mark.parametrize("parties", [2, 3])
def test_a_study_aligns_its_sites_and_equals_one_matched_before(parties, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts, found = tables(parties), {}
    ways = {
        "aligned": (parts, '[align]\nmethod = "psi"\nduplicates = "first"\n'),
        "matched": (matched_before(parts), ""),
    }
    for name, (held, how) in ways.items():
        text = STUDY.replace("joint", name).replace("{align}", how)
        for party, table in held.items():
            table.to_csv(tmp_path / f"{name}-{party}.csv", index=False)
            text += f'[sites.{party}]\nsource = "{name}-{party}.csv"\n'
        (tmp_path / f"{name}.toml").write_text(text)
        assert main(["run", f"{name}.toml", "--quiet"]) == 0
        found[name] = json.loads((tmp_path / "runs" / name / "model.json").read_text())["fitted"]
    for key in ("cluster_centers_", "inertia_", "history_", "cluster_sizes_"):
        assert found["aligned"][key] == found["matched"][key]


def test_sites_are_told_of_rows_that_all_hold_and_of_no_others():
    """Clinic and laboratory have 40 ids in common, 38 of which the register has too; only these come back."""
    fed = aligned(tables(3))
    recording = record_federation(fed)
    fc.KMeans(3, random_state=1).fit(fed)
    told = [call.message for calls, _ in recording.exchanges for call in calls.values() if "alignment." in call.handler]
    assert {len(message.tags) for message in told if isinstance(message, alignment.CommonTags)} == {38}
    kinds = {type(message).__name__ for message in told}
    assert kinds == {"SiteRing", "PassedList", "ReturnedList", "CommonCount", "CommonTags"}


def test_strict_sites_align_and_cluster_under_masks():
    parts = {name: table.drop_duplicates("who") for name, table in tables(3).items()}
    options = {"init": [[0.0] * 6, [12.0] * 6], "max_iter": 4}
    fed = aligned(parts, aggregation="secure", policy="nhs", duplicates="refuse")
    model = fc.KMeans(2, **options).fit(fed)
    assert np.array_equal(model.labels_, fc.KMeans(2, **options).fit(joined(matched_before(parts))).labels_)
    quiet = fc.KMeans(2, opens="labels", **options).fit(aligned(parts, policy="nhs", duplicates="refuse"))
    assert np.array_equal(quiet.labels_, model.labels_)
