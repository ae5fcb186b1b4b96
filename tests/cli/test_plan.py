"""`fedclust site plan`, read as a data steward would, and the approval it signs."""

import json

import numpy as np
import pytest
from cli_user import csv, rows

from fedclust.app.run_folder import Run
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import REMEDIES
from fedclust.site.site_file import read_site_file

SITES = ("cleveland", "hungary", "basel")
STUDY = """\
name = "heart"
columns = ["age", "bp"]
[cluster]
method = "fuzzy-c-means"
k = 3
init = "box"
max_iter = 5
[privacy]
aggregation = "secure"
[sites.cleveland]
source = "cleveland.csv"
[sites.hungary]
source = "hungary.csv"
[sites.basel]
source = "basel.csv"
"""
SITE = """\
name = "hungary"
source = "hungary.csv"
state = "state"
identity = "id.key"
steward = "steward.key.pub"
approval = "approval.json"
[policy]
profile = "standard"
"""


@pytest.fixture
def steward(user):
    user.write("basel.csv", csv(["age", "bp"], rows(3)))
    user.study(text=STUDY)
    user.write("site.toml", SITE)
    for name in ("id.key", "steward.key"):
        assert user("site", "key", name)[0] == 0
    return user


def plan(user, *words):
    return user("site", "plan", "study.toml", *words)


def document(user, *words):
    code, out, err = plan(user, *words, "--json")
    assert err == ""
    return code, json.loads(out)


def test_the_gist_comes_first(steward):
    code, out, _ = plan(steward, "--data", "hungary.csv", "--name", "hungary")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == 'Study "heart" at site "hungary"'
    assert lines[2].startswith("VERDICT: ALLOWED by this site's rules")
    assert "The coordinator sees sums over all 3 sites" in " ".join(lines)
    assert out.index("VERDICT") < out.index("FINDINGS") < out.index("DETAILS")


def test_every_question_of_the_run_is_in_the_plan(steward):
    _, found = document(steward, "--site", "site.toml")
    assert steward("run", "study.toml", "--quiet")[0] == 0
    asked = {}
    for line in (steward.folder / "runs" / "heart" / "sites" / "hungary" / "ledger.jsonl").read_text().splitlines():
        name = json.loads(line)["handler"]
        asked[name] = asked.get(name, 0) + 1
    planned = {question["name"]: question["most"] for question in found["questions"]}
    assert set(asked) <= set(planned)
    assert all(count <= planned[name] for name, count in asked.items())
    for question in found["questions"]:
        assert [field["name"] for field in question["fields"]] == list(HANDLERS[question["name"]].release.schema())


def test_numbers_that_are_known_are_real_and_others_are_marked_as_stand_ins(steward):
    _, out, _ = plan(steward, "--site", "site.toml")
    real, stand_ins = out.split("EXAMPLES, computed from this site's rows alone")
    assert "bounds.count_rows.rows = 40\n      the total number of rows\n" in real
    assert "row_split.moments.mass" in stand_ins
    assert "bounds.count_rows.rows" not in stand_ins


def test_the_first_round_is_known_where_start_and_bounds_are_declared(steward):
    text = STUDY.replace('init = "box"', "init = [[0.0, 0.0], [6.0, 6.0], [12.0, 12.0]]").replace(
        'columns = ["age", "bp"]', 'columns = ["age", "bp"]\nbounds = [-30.0, 30.0]'
    )
    steward.study(text=text)
    _, found = document(steward, "--site", "site.toml")
    known = {(question["name"], question["known"]) for question in found["questions"]}
    assert {("row_split.moments", True), ("row_split.moments", False)} <= known


def test_a_refusal_names_rule_and_remedy(steward):
    steward.study(('aggregation = "secure"', 'aggregation = "plain"'), text=STUDY)
    code, out, _ = plan(steward, "--site", "site.toml")
    assert code == 3
    assert "VERDICT: REFUSED by this site's rules (1 reason)" in out
    assert REMEDIES["too-many-numbers"].partition("; ")[0] in " ".join(out.split())
    assert document(steward, "--site", "site.toml")[1]["allowed"] is False


def test_points_are_refused_where_the_floor_is_above_five(steward):
    steward.study(('init = "box"', 'init = "careful"'), text=STUDY)
    code, found = document(steward, "--data", "hungary.csv", "--policy", "nhs")
    assert code == 3
    assert {q["name"]: q["code"] for q in found["questions"] if q["code"]} == {
        "initial_centers.seed_candidates": "points-not-allowed"
    }
    assert document(steward, "--data", "hungary.csv", "--policy", "standard")[0] == 0


def approve(user):
    return plan(user, "--site", "site.toml", "--approve", "approval.json", "--key", "steward.key")


def run(user):
    """A run of the study with hungary behind its own file; the others are in this process."""
    study, whole = federated(user, "secure")
    with whole:
        return study.make_estimator(whole.columns).fit(whole)


def federated(user, mode):
    import fedclust as fc
    from fedclust.app.study import read_study
    from fedclust.engines.local_engine import LocalEngine
    from fedclust.federation.aggregation import Aggregation, EnrolledSites
    from fedclust.federation.local_sites import LocalSites

    made = Run.create(user.folder / "made", (user.folder / "study.toml").read_text(), origin=user.folder)
    study = read_study(user.folder / "study.toml")
    fed = study.open_federation()
    enrolled = EnrolledSites(SITES, made.folder)
    desk = read_site_file(user.folder / "site.toml").open_server(columns=("age", "bp"))
    desk.gate.vaults = enrolled.vaults_opener("hungary")
    desks = {**fed.local_sites, "hungary": desk}
    for party in ("cleveland", "basel"):
        desks[party].gate.vaults = enrolled.vaults_opener(party)
    held = dict.fromkeys(SITES, fed.columns)
    how = Aggregation(mode)
    engine = LocalEngine(desks)
    about = {"columns": fed.columns, "aggregation": how, "enrolled": enrolled, "local_sites": LocalSites(desks)}
    return study, fc.Federation(engine, held, run=made.folder, **about)


def test_an_approved_study_runs_and_one_letter_ends_that(steward):
    code, out, _ = approve(steward)
    assert code == 0
    assert "Approved until" in out
    assert np.isfinite(run(steward).final_objective)


def test_an_approved_search_for_k_ends_well_though_every_site_holds_one_cluster(steward):
    import fedclust as fc
    from fedclust.app.analysis import describe

    rng = np.random.default_rng(0)
    for at, name in enumerate(SITES):
        steward.write(f"{name}.csv", csv(["age", "bp"], rng.normal(size=(60, 2)) + 20 * at))
    search = STUDY.replace("k = 3", 'k = "1..4"').replace("secure", "blind")
    steward.study(text=search.replace("max_iter = 5", "max_iter = 20"))
    assert approve(steward)[0] == 0
    study, whole = federated(steward, "blind")
    choice = study.cluster.choice
    with whole:
        found = fc.select_k(study.make_estimator(whole.columns), whole, choice.ks, **choice.options)
        assert describe(found.model, whole, found)["indices"]
    assert found.k == 3


def test_a_plan_says_how_many_rows_the_rehearsal_showed(steward):
    steward.study(text=STUDY.replace("fuzzy-c-means", "k-means"))
    out = plan(steward, "--site", "site.toml")[1]
    assert "can work out none of the 40 rows of this table by the attacks of fedclust" in " ".join(out.split())
    assert "rows of all sites together follow by adding and subtracting the sums" in " ".join(out.split())
    assert "floored_opening.find_allowed" in out
    assert "hide_counts_from_coordinator" not in out
    steward.study(text=STUDY)
    out = plan(steward, "--site", "site.toml")[1]
    assert "(they are weighted, and can also be solved as equations)" in " ".join(out.split())
    steward.study(text='missing = "partial"\n' + STUDY.replace("fuzzy-c-means", "k-means"))
    out = " ".join(plan(steward, "--site", "site.toml")[1].split())
    assert "was not measured, because rows may have missing values" in out
    assert "opens them however few rows have changed" in out


def test_an_approved_study_that_opens_sums_above_a_floor_runs(steward):
    steward.study(text=STUDY.replace("fuzzy-c-means", "k-means"))
    assert approve(steward)[0] == 0
    assert run(steward).opens_floored


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("study.toml", "max_iter = 5", "max_iter = 6"), ("site.toml", "standard", "datashield")],
)
def test_a_change_after_approval_makes_the_site_refuse(steward, name, old, new):
    import fedclust as fc

    approve(steward)
    text = (steward.folder / name).read_text()
    steward.write(name, text.replace(old, new))
    with pytest.raises(fc.QuorumLost) as lost:
        run(steward)
    assert lost.value.missing == {"hungary": "not-approved"}


def test_noise_on_rows_is_part_of_what_is_approved(steward):
    import fedclust as fc

    noise = "[noise]\nepsilon = 8\nbounds = [-1000, 1000]\n"
    steward.write("site.toml", SITE + noise)
    assert approve(steward)[0] == 0
    steward.write("site.toml", SITE + noise.replace("8", "9"))
    with pytest.raises(fc.QuorumLost) as lost:
        run(steward)
    assert lost.value.missing == {"hungary": "not-approved"}


def test_a_plan_shows_rows_only_as_noise_leaves_them(steward):
    steward.write("site.toml", SITE + "[noise]\nepsilon = 0.001\nbounds = [-1e9, 1e9]\n")
    plain, noised = (
        document(steward, *words)[1]
        for words in (("--name", "hungary", "--data", "hungary.csv"), ("--site", "site.toml"))
    )
    assert plain["rows"] == noised["rows"]
    assert "e+0" in plan(steward, "--site", "site.toml")[1]  # centres as large as the noise
    assert not (steward.folder / "state" / "noise").exists()


def private(epsilon):
    return (
        STUDY.replace('columns = ["age", "bp"]', 'columns = ["age", "bp"]\nbounds = [-1000, 1000]')
        .replace('fuzzy-c-means"', 'k-means"')
        .replace('init = "box"\nmax_iter = 5\n', "")
        .replace('"secure"', f'"secure"\nepsilon = {epsilon}\ndelta = 1e-6')
    )


def test_a_study_under_differential_privacy_is_priced(steward):
    pytest.importorskip("opendp")
    steward.study(text=private(1.0))
    steward.write("site.toml", SITE + "epsilon = 1.5\n")
    code, out, _ = plan(steward, "--site", "site.toml")
    assert code == 0
    assert "epsilon 1 at delta 1e-06 for each row" in out
    assert "0 has been spent already; after this study the total would be 1" in " ".join(out.split())
    found = document(steward, "--site", "site.toml")[1]
    assert found["privacy"]["rho"] == pytest.approx(0.024356, rel=1e-3)  # epsilon 1 at 1e-6
    assert not (steward.folder / "state").exists()  # a plan spends nothing and leaves nothing


def test_a_study_beyond_the_budget_is_refused_and_cannot_be_approved(steward):
    pytest.importorskip("opendp")
    steward.study(text=private(1.0))
    steward.write("site.toml", SITE + "epsilon = 0.9\n")
    code, out, _ = plan(steward, "--site", "site.toml")
    assert code == 3
    assert "This site's privacy budget is too small for the study." in " ".join(out.split())
    code, _, err = approve(steward)
    assert code == 2
    assert "privacy budget is too small for the study" in err


def test_what_the_rules_refuse_cannot_be_approved(steward):
    steward.study(('aggregation = "secure"', 'aggregation = "plain"'), text=STUDY)
    code, _, err = approve(steward)
    assert code == 2
    assert "nothing to approve" in err
    assert not (steward.folder / "approval.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give a data file with --data"),
        (("--site", "site.toml", "--policy", "nhs"), "the site's own file decides"),
        (("--data", "hungary.csv", "--approve", "x.json"), "needs --site FILE"),
        (("--data", "hungary.csv", "--name", "paris"), "the study has no site 'paris'"),
        (("--data", "hungary.csv", "--policy", "lax"), "there is no policy 'lax'"),
        (("--site", "nowhere.toml"), "there is no site file"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(steward, words, told):
    code, _, err = plan(steward, *words)
    assert code == 2
    assert told in err


def test_a_study_for_served_sites_names_no_sources(steward):
    text = "\n".join(line for line in STUDY.splitlines() if not line.startswith("source"))
    steward.study(text=text)
    code, out, err = steward("site", "plan", "study.toml", "--site", "site.toml")
    assert code == 0, err
    assert "ALLOWED" in out
    assert "composition" not in out  # under masks it stays at the site
    assert "groups = false" in " ".join(out.split())
    assert steward("run", "study.toml")[0] == 2  # which needs them
