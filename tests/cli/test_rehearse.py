"""`fedclust rehearse`: all refusals of all sites before a federation starts, without a trace at any of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cli_user import csv, rows

import fedclust as fc
from fedclust.privacy.keys import Identity
from fedclust.site.approval import ApprovalTerms, digest_study, roster_digest, sign_terms
from fedclust.site.ledger import Ledger, LedgerEntry
from fedclust.site.site_file import make_key, read_private_key, read_public_key, read_site_file

SITES = ("north", "south", "west")
STUDY = """\
name = "heart"
columns = ["age", "bp"]
[cluster]
method = "fuzzy-c-means"
k = 2
init = "box"
max_iter = 3
[privacy]
aggregation = "secure"
"""
SERVED = STUDY + "".join(f"[sites.{name}]\n" for name in SITES)
SIMULATED = STUDY + "".join(f'[sites.{name}]\nsource = "{name}.csv"\n' for name in SITES)


@pytest.fixture
def three(user):
    """Three sites with keys, rows, a site file each, and a study for served sites."""
    user.study(text=SERVED)
    for seed, name in enumerate(SITES):
        user.write(f"{name}.csv", csv(["age", "bp"], rows(seed)))
        make_key(user.folder / f"{name}.key")
        site_file(user, name)
    return user


def site_file(user, name, policy='profile = "standard"', top="", wrong_key_of=None):
    paths = {other: user.folder / f"{other}.key.pub" for other in SITES}
    keys = {
        other: (Identity.new().public if other == wrong_key_of else read_public_key(path)).hex()
        for other, path in paths.items()
        if path.exists()
    }
    roster = "".join(f'{other} = "{key}"\n' for other, key in keys.items())
    user.write(
        f"{name}.toml",
        f'name = "{name}"\nsource = "{name}.csv"\nstate = "{name}-state"\nidentity = "{name}.key"\n{top}\n'
        f"[policy]\n{policy}\n[roster]\n{roster}",
    )


def complete_rosters(user, **policies):
    """Write all site files again, now that all keys are there."""
    for name in SITES:
        site_file(user, name, *policies.get(name, ()))


def rehearse(user, *words):
    given = [word for name in SITES for word in ("--site", f"{name}={name}.toml")]
    code, out, err = user("rehearse", "study.toml", *given, *words, "--json")
    assert err == ""
    return code, json.loads(out)


def refusals(found):
    return {
        party: {refusal["code"]: refusal["message"] for refusal in site["refusals"]}
        for party, site in found["sites"].items()
    }


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in folder.rglob("*")
    }


NOTHING = {name: {} for name in SITES}


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_sites_that_would_all_answer(three, mode):
    three.study(text=SERVED.replace('"secure"', f'"{mode}"').replace("fuzzy-c-means", "k-means"))
    for seed, name in enumerate(SITES):
        three.write(f"{name}.csv", csv(["age", "bp"], rows(seed, 400)))
    complete_rosters(three)
    before = snapshot(three.folder)
    code, found = rehearse(three)
    assert (code, found["would_succeed"], refusals(found), found["stopped"]) == (0, True, NOTHING, None)
    assert all(site["asked"] == site["answered"] > 0 for site in found["sites"].values())
    assert snapshot(three.folder) == before  # nothing was written, nor was a state folder created


def test_a_simulation_without_rules_is_refused_by_the_policy_that_enrol_writes(three):
    three.study(text=SIMULATED.replace('"secure"', '"plain"'))
    assert three("run", "study.toml", "--quiet")[0] == 0
    code, out, _ = three("rehearse", "study.toml")
    assert code == 3
    assert "as enrol writes it" in out
    assert "use secure aggregation" in " ".join(out.split())
    assert "The served run would fail: north, south, west would refuse." in " ".join(out.split())
    assert "Remove these keys before you send it" in " ".join(out.split())
    three.study(text=SIMULATED)
    code, out, _ = three("rehearse", "study.toml")
    assert code == 0
    assert "The served run would succeed, once the notes above are followed" in out


def test_a_policy_in_the_study_counts_for_sites_without_a_file(three):
    text = SIMULATED.replace('"secure"', '"plain"').replace('.csv"\n', '.csv"\npolicy = "none"\n')
    three.study(text=text)
    code, out, _ = three("rehearse", "study.toml", "--json")
    assert (code, json.loads(out)["sites"]["north"]["rules_from"]) == (0, "the study")


def test_every_site_is_rehearsed_to_the_end_and_refuses_for_its_own_reason(three):
    three.study(text=SERVED.replace('"box"', '"careful"'))
    complete_rosters(
        three,
        north=('profile = "standard"\ncolumns = ["age"]',),
        south=('profile = "nhs"',),
        west=('profile = "standard"\nmin_rows = 41',),
    )
    before = snapshot(three.folder)
    code, found = rehearse(three)
    got = refusals(found)
    assert (code, found["would_succeed"], found["stopped"]) == (3, False, None)
    assert got["north"] == {"column-not-allowed": 0}
    assert set(got["south"]) == {"points-not-allowed"}
    assert set(got["west"]) == {"too-few-rows"}
    assert "'bp'" in found["sites"]["north"]["refusals"][0]["reason"]
    assert found["sites"]["north"]["answered"] > 5  # the rest of the run was rehearsed there too
    assert snapshot(three.folder) == before


def test_one_site_may_have_several_reasons(three):
    three.study(text=SERVED.replace('"box"', '"careful"'))
    complete_rosters(three, south=('profile = "nhs"\nhandlers = ["bounds.count_rows", "roster.offer"]',))
    found = rehearse(three)[1]
    (only,) = found["sites"]["south"]["refusals"]
    assert only["code"] == "handler-not-allowed"
    assert {"roster.accept", "initial_centers.seed_candidates", "row_split.moments"} <= set(only["questions"])
    complete_rosters(three, south=('profile = "nhs"\nmin_parties = 4\naggregation = "blind"',))
    assert {"too-few-parties", "aggregation-too-weak"} == set(refusals(rehearse(three)[1])["south"])


def test_in_a_blind_run_the_encrypted_reasons_are_read(three):
    three.study(text=SERVED.replace('"secure"', '"blind"'))
    complete_rosters(three, west=('profile = "standard"\nmin_rows = 41',), south=("max_calls = 4",))
    code, found = rehearse(three)
    assert code == 3
    assert {party: set(own) for party, own in refusals(found).items()} == {
        "north": set(),
        "south": {"too-many-calls"},
        "west": {"too-few-rows"},
    }


def test_what_a_site_has_answered_before_counts_and_is_not_changed(three):
    complete_rosters(three, west=("max_calls = 3",))
    run = f"1f-{digest_study(SERVED)}"
    ledger = Ledger(three.folder / "west-state")
    for step in (1, 2, 3):
        ledger.write(LedgerEntry(run, step, "bounds.count_rows", "total", 3, f"{step:064x}", 9, question=f"q{step}"))
    before = snapshot(three.folder)
    assert refusals(rehearse(three)[1]) == {**NOTHING, "west": {"too-many-calls": 1}}
    assert snapshot(three.folder) == before


def test_the_budget_that_was_spent_before_counts_and_is_not_spent(three):
    pytest.importorskip("opendp")
    from fedclust.site.privacy_spending import PrivacySpending, Purchase

    private = SERVED.replace('"secure"', '"secure"\nepsilon = 1.0').replace("fuzzy-c-means", "k-means")
    private = private.replace('init = "box"\nmax_iter = 3\n', "").replace("[cluster]", "bounds = [-99, 99]\n[cluster]")
    three.study(text=private)
    complete_rosters(three, north=('profile = "standard"\nepsilon = 1.1',), west=('profile = "standard"\nepsilon = 9',))
    assert refusals(rehearse(three)[1]) == NOTHING
    spending = PrivacySpending(three.folder / "north-state", 1.1, 1e-6)
    spending.spend(Purchase("an earlier run", 1, "private.sums", "00", 0.02))
    before = snapshot(three.folder)
    assert set(refusals(rehearse(three)[1])["north"]) == {"over-budget"}
    assert snapshot(three.folder) == before


WAITING = 'steward = "steward.key.pub"\napproval = "approval.json"'


def approve(user, **changed):
    site, study = read_site_file(user.folder / "south.toml"), (user.folder / "study.toml").read_text()
    facts = (site.policy.digest, roster_digest(site.roster), fc.__version__, "2999-12-31")
    terms = ApprovalTerms("heart", "south", digest_study(study), *facts, dict.fromkeys(QUESTIONS, 99), "secure")
    text = sign_terms(replace(terms, **changed), read_private_key(user.folder / "steward.key"))
    (user.folder / "approval.json").write_text(text)


QUESTIONS = (
    *("roster.offer", "roster.accept", "schema.declare", "bounds.count_rows", "bounds.magnitudes", "bounds.extremes"),
    *("row_split.moments", "pca.deviation_products", "described_cells.cell_spread", "described_cells.cell_distances"),
    *("cell_sums.objectives", "fuzzy_indices.index_sums", "standardisation.column_sums"),
)


def test_an_approval_is_read_and_every_reason_why_it_does_not_hold_is_found(three):
    make_key(three.folder / "steward.key")
    complete_rosters(three, south=('profile = "standard"', WAITING))
    code, found = rehearse(three)
    assert (code, refusals(found)) == (3, {**NOTHING, "south": {"not-approved": 0}})
    assert "there is no approval at" in found["sites"]["south"]["refusals"][0]["reason"]
    assert three("site", "plan", "study.toml", "--site", "south.toml", "--approve", "approval.json", "--key",
                 "steward.key")[0] == 0  # fmt: skip
    before = snapshot(three.folder)
    assert rehearse(three)[0] == 0
    assert snapshot(three.folder) == before
    for changed in ({"expires": "2020-01-01"}, {"study": "0" * 32}, {"policy": "0"}, {"most": {"roster.offer": 1}}):
        approve(three, **changed)
        found = rehearse(three)[1]
        assert set(refusals(found)["south"]) == {"not-approved"}
        assert found["sites"]["south"]["refused"] > 0


def test_a_missing_second_signature_is_found(three):
    make_key(three.folder / "steward.key")
    make_key(three.folder / "second.key")
    top = 'steward = ["steward.key.pub", "second.key.pub"]\napproval = "approval.json"'
    complete_rosters(three, south=('profile = "standard"\nsignatures = 2', top))
    approve(three)
    (refusal,) = rehearse(three)[1]["sites"]["south"]["refusals"]
    assert "has 1 of the 2 signatures" in refusal["reason"]


def test_a_wrong_key_in_a_roster_is_found_and_ends_the_rehearsal(three):
    complete_rosters(three)
    site_file(three, "west", wrong_key_of="south")
    code, found = rehearse(three)
    assert code == 3
    assert {party: set(own) for party, own in refusals(found).items()} == {**NOTHING_SETS, "west": {"keys-refused"}}
    assert found["would_succeed"] is False


NOTHING_SETS = {name: set() for name in SITES}


def test_rows_that_cannot_be_read_are_the_sites_own_reason(three):
    complete_rosters(three)
    three.write("south.csv", "age,pulse\n1,2\n")
    code, found = rehearse(three)
    assert code == 3
    assert set(refusals(found)["south"]) == {"bad-data"}
    assert "south" in found["stopped"]


def test_a_quorum_may_do_without_a_site(three):
    three.study(text=SERVED.replace("max_iter = 3", "max_iter = 3\nquorum = 2").replace('"secure"', '"plain"'))
    for name in SITES:
        three.write(f"{name}.csv", csv(["age", "bp"], rows(SITES.index(name), 400)))
    complete_rosters(three, west=("min_rows = 401",), north=("min_rows = 9",), south=("min_rows = 9",))
    code, found = rehearse(three)
    assert (code, found["all_answer"], found["would_succeed"]) == (3, False, True)
    out = three("rehearse", "study.toml", *(w for n in SITES for w in ("--site", f"{n}.toml")))[1]
    assert "The served run would succeed without west" in out
    complete_rosters(three, west=("min_rows = 401",))  # the others want three sites in a sum
    found = rehearse(three)[1]
    assert found["would_succeed"] is False
    assert "requires more sites in a sum" in found["lost"]


def test_kits_of_enrol_are_rehearsed_as_they_are(three):
    assert three("enrol", "study.toml", "--engine", "files", "--out", "kits", "--policy", "nhs")[0] == 0
    for name in SITES:
        (three.folder / "kits" / name / "rows.csv").write_bytes((three.folder / f"{name}.csv").read_bytes())
    before = snapshot(three.folder)
    code, out, err = three("rehearse", "study.toml", "--site", "kits")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert snapshot(three.folder) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere.toml",), "there is no study"),
        (("study.toml",), "site 'north' has no rows to rehearse with"),
        (("study.toml", "--policy", "lax"), "there is no policy 'lax'"),
        (("study.toml", "--site", "south=north.toml"), "this file is of site 'north'"),
        (("study.toml", "--site", "north.toml", "--site", "north=north.toml"), "two files of site 'north'"),
        (("study.toml", "--site", "paris.toml"), "there is no site file"),
    ],
)
def test_bad_arguments_end_with_code_2(three, words, told):
    code, _, err = three("rehearse", *words)
    assert code == 2
    assert told in err


def test_a_study_that_cannot_be_served_ends_with_code_2(three):
    three.study(text=SIMULATED.replace('columns = ["age", "bp"]\n', ""))
    code, _, err = three("rehearse", "study.toml")
    assert (code, "the study must list its columns" in err) == (2, True)
    three.study(text=SIMULATED.replace('[sites.west]\nsource = "west.csv"\n', ""))
    code, _, err = three("rehearse", "study.toml")
    assert (code, "needs at least three sites" in err) == (2, True)


def test_rehearsed_rows_may_come_from_the_study_while_the_rules_come_from_a_file(three):
    three.study(text=SIMULATED.replace("north.csv", "other.csv"))
    three.write("other.csv", csv(["age", "bp"], np.ones((4, 2))))
    complete_rosters(three)
    assert set(refusals(rehearse(three)[1])["north"]) == {"too-few-rows"}
