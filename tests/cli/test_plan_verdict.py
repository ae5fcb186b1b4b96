"""The verdict of `fedclust site plan`: what stands out in a table, what contradicts, and who must sign."""

import json

import pytest
from cli_user import rows

STUDY = """\
name = "heart"
[columns.age]
[columns.bp]
[columns.drug]
type = "category"
levels = ["a", "b", "c"]
[columns.stage]
type = "ordinal"
levels = ["low", "mid", "high"]
[columns.smoker]
[cluster]
method = "k-means"
k = 2
max_iter = 5
[privacy]
aggregation = "secure"
[sites.north]
[sites.south]
[sites.west]
"""
COLUMNS = ["age", "bp", "drug", "stage", "smoker"]
SITE = """\
name = "north"
source = "north.csv"
state = "state"
steward = ["first.key.pub", "second.key.pub"]
approval = "approval.json"
[policy]
profile = "nhs"
signatures = 2
"""


def table(count=60, *, drug=(), stage=(), smoker=(), age=()):
    """Rows in two groups without rare values, and with the planted values in the first rows."""
    base = rows(0, count)
    own = [list(row) for row in base]
    text = ["age,bp,drug,stage,smoker"]
    for i, (x, y) in enumerate(own):
        values = [
            age[i] if i < len(age) else x,
            y,
            drug[i] if i < len(drug) else "ab"[i % 2],
            stage[i] if i < len(stage) else ("low", "mid")[i % 2],
            smoker[i] if i < len(smoker) else i // 2 % 2,
        ]
        text.append(",".join(map(str, values)))
    return "\n".join([*text, ""])


@pytest.fixture
def steward(user):
    user.study(text=STUDY)
    user.write("north.csv", table())
    return user


def verdict(user, *words):
    code, out, err = user("site", "plan", "study.toml", "--data", "north.csv", "--name", "north", *words, "--json")
    assert err == ""
    return code, json.loads(out)["verdict"]


def codes(found):
    return {finding["code"]: finding["severity"] for finding in found["findings"]}


def test_a_table_without_rare_values_has_no_findings(steward):
    code, found = verdict(steward, "--policy", "nhs")
    assert (code, found["decision"], codes(found), found["contradictions"]) == (0, "allowed", {}, [])
    assert found["shown_rows"] == 0
    assert "no high or medium risk was found" in found["text"]


def test_planted_rare_levels_are_counted_in_every_kind_of_column(steward):
    steward.write("north.csv", table(drug=["c"], stage=["high"] * 4, smoker=[9] * 0))
    found = verdict(steward, "--policy", "nhs")[1]
    levels = {(one["column"], one["level"]): one["rows"] for one in found["table"]["rare_levels"]}
    assert levels == {("drug", "c"): 1, ("stage", "high"): 4}
    # the products of the other levels of a category give those of its rare level, so its row is recovered
    assert codes(found) == {"rows-recovered": "high", "lone-level": "high", "rare-level": "medium"}
    assert "drug = c" in found["findings"][1]["text"]


@pytest.mark.parametrize(("rare", "common"), [(1, 0), (2, 1), (0, 1)])
def test_a_column_of_two_values_has_levels_although_none_are_declared(steward, rare, common):
    text = table().splitlines()
    values = [rare if i < 3 else common for i in range(len(text) - 1)]
    marked = [text[0], *(f"{line.rpartition(',')[0]},{v}" for line, v in zip(text[1:], values, strict=True))]
    steward.write("north.csv", "\n".join([*marked, ""]))
    found = verdict(steward, "--policy", "nhs")[1]
    assert found["table"]["rare_levels"] == [{"column": "smoker", "level": str(rare), "rows": 3}]
    # the floor decides: three rows are enough for this profile, but the study's own floor is ten
    assert found["table"]["floor"] == 10


def test_a_planted_far_row_dominates_its_column(steward):
    steward.write("north.csv", table(age=[99999.0]))
    found = verdict(steward, "--policy", "nhs")[1]
    (far,) = found["table"]["far_rows"]
    assert (far["column"], far["rows"]) == ("age", 1)
    assert far["share"] == pytest.approx(59 / 60, rel=1e-6)  # (n - 1) / n for one row far from n - 1 others
    assert codes(found)["far-rows"] == "medium"


def test_a_planted_lone_row_has_a_cluster_of_its_own(steward):
    steward.study(text=STUDY.replace("k-means", "fuzzy-c-means"))
    steward.write("north.csv", table(age=[9999.0]))
    found = verdict(steward, "--policy", "nhs")[1]
    assert found["table"]["clusters"] == {"clusters": 2, "small": 1, "lone": 1}
    assert codes(found)["lone-row"] == "high"


def test_a_few_incomplete_rows_are_a_finding(steward):
    steward.study(text='missing = "drop"\n' + STUDY)
    steward.write("north.csv", table(age=["", ""]))
    found = verdict(steward, "--policy", "nhs")[1]
    assert found["table"]["left_out"] == 2
    assert codes(found) == {"few-left-out": "medium"}


def test_under_noise_rows_that_stand_out_are_no_risk(steward):
    pytest.importorskip("opendp")
    private = STUDY.replace('"secure"', '"secure"\nepsilon = 1.0').replace("max_iter = 5\n", "")
    steward.study(text=f"{private}[bounds]\nage = [-1e5, 1e5]\nbp = [-99, 99]\nsmoker = [0, 1]\n")
    steward.write("north.csv", table(drug=["c"]))
    found = verdict(steward, "--policy", "nhs")[1]
    assert codes(found) == {"no-budget": "low", "noise": "low"}
    assert "noise keeps the coordinator from working out single rows" in found["text"]


def test_a_floor_over_all_sites_contradicts_plain_aggregation(steward):
    steward.study(text=STUDY.replace('"secure"', '"plain"'))
    found = verdict(steward, "--policy", "none")[1]
    assert found["contradictions"] == ["floor-undone"]
    assert "sums over all 3 sites" not in found["text"]
    assert "the coordinator sees this site's own part of every sum" in found["text"]
    assert found["max_sums_of"] == "this site"
    assert codes(found)["no-rules"] == "high"


def test_a_floor_of_the_study_below_that_of_the_site_is_a_contradiction(steward):
    steward.study(text=STUDY.replace('"secure"', '"secure"\nfloor = 5'))
    assert verdict(steward, "--policy", "nhs")[1]["contradictions"] == ["floor-below-own"]


@pytest.mark.parametrize(
    ("mode", "seen"),
    [
        ("secure", "The coordinator sees sums over all 3 sites"),
        ("blind", "The coordinator sees only the lengths and times"),
    ],
)
def test_a_verdict_says_who_learns_what(steward, mode, seen):
    steward.study(text=STUDY.replace('"secure"', f'"{mode}"'))
    learns = verdict(steward, "--policy", "nhs")[1]["who_learns"]
    assert seen in learns["coordinator"]
    assert set(learns) == {"coordinator", "other_sites", "readers"}
    assert ("This site leads" in learns["coordinator"]) == (mode == "blind")


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_a_plan_fits_a_terminal_of_100_columns_and_begins_with_words(steward, mode):
    steward.study(text=STUDY.replace('"secure"', f'"{mode}"').replace("k = 2", 'k = "2..4"'))
    out = steward("site", "plan", "study.toml", "--data", "north.csv", "--name", "north")[1]
    assert max(map(len, out.splitlines())) <= 100
    assert out.index("VERDICT") < out.index("FINDINGS") < out.index("DETAILS") < out.index("\nquestion  ")


@pytest.fixture
def two(steward):
    steward.write("site.toml", SITE)
    for name in ("first", "second", "stranger"):
        assert steward("site", "key", f"{name}.key")[0] == 0
    return steward


def sign(user, name, *words):
    given = ("--site", "site.toml", "--approve", "approval.json", "--key", f"{name}.key", *words)
    return user("site", "plan", "study.toml", *given)


def load(user):
    from fedclust.site.site_file import read_site_file

    return read_site_file(user.folder / "site.toml").load_approval()


def test_the_verdict_says_how_many_stewards_must_sign(two):
    out = two("site", "plan", "study.toml", "--site", "site.toml")[1]
    assert "This site answers only after 2 stewards have signed." in " ".join(out.split())


def test_a_second_steward_adds_a_signature_to_the_file(two):
    from fedclust.core.errors import StudyError

    code, out, _ = sign(two, "first", "--expires", "2999-01-01")
    assert code == 0
    assert "approval.json has 1 of 2 signatures" in out
    with pytest.raises(StudyError, match="has 1 of the 2 signatures"):
        load(two)
    code, out, _ = sign(two, "second")
    assert code == 0
    assert "Approved until 2999-01-01" in out
    assert load(two).terms.expires == "2999-01-01"
    assert len(json.loads((two.folder / "approval.json").read_text())["signatures"]) == 2


def test_the_same_steward_cannot_sign_twice(two):
    sign(two, "first")
    code, _, err = sign(two, "first")
    assert code == 2
    assert "this steward has signed approval.json already" in err


def test_a_key_of_nobody_in_the_site_file_cannot_sign(two):
    code, _, err = sign(two, "stranger")
    assert code == 2
    assert "is not the key of a steward that the site file names" in err


def test_a_second_signature_under_another_study_begins_a_new_approval(two):
    sign(two, "first")
    two.study(text=STUDY.replace("max_iter = 5", "max_iter = 6"))
    code, out, _ = sign(two, "second")
    assert code == 0
    assert "has 1 of 2 signatures" in out


def test_an_altered_file_gets_no_second_signature(two):
    sign(two, "first")
    path = two.folder / "approval.json"
    path.write_text(path.read_text().replace('"heart"', '"hearts"'))
    code, _, err = sign(two, "second")
    assert code == 2
    assert "delete the file and let every steward sign again" in err


def test_another_last_day_is_not_added_to_a_signed_one(two):
    sign(two, "first", "--expires", "2999-01-01")
    code, _, err = sign(two, "second", "--expires", "2998-01-01")
    assert code == 2
    assert "leave --expires out to add a signature" in err


def test_with_two_sites_the_other_one_can_compute_this_sites_part(steward):
    steward.study(text=STUDY.replace('"secure"', '"plain"').replace("[sites.west]\n", ""))
    learns = verdict(steward, "--policy", "none")[1]["who_learns"]
    assert "the other site can compute this site's part" in learns["other_sites"]


def test_a_column_that_is_not_listed_is_named_and_cannot_be_approved(two):
    two.write("site.toml", SITE.replace("signatures = 2", 'columns = ["age", "bp", "drug", "stage"]'))
    code, out, _ = two("site", "plan", "study.toml", "--site", "site.toml")
    assert code == 3
    assert "REFUSED  The study uses the column 'smoker'" in out
    code, _, err = sign(two, "first")
    assert code == 2
    assert "nothing to approve" in err
    assert not (two.folder / "approval.json").exists()


def test_a_column_without_values_here_is_no_reason_to_remove_it_from_the_study(steward):
    steward.study(text='missing = "partial"\n' + STUDY)
    steward.write("north.csv", table(age=[""] * 60))
    code, _, err = steward("site", "plan", "study.toml", "--data", "north.csv", "--name", "north")
    assert code == 2
    assert "cannot be rehearsed on the rows of site 'north' alone" in err
    assert "fedclust rehearse" in err
