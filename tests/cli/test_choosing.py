"""Studies that leave the number of clusters open: how they are read, told and reported."""

import json

import pytest

import fedclust as fc
from fedclust.cli import result_summary
from fedclust.cli.progress import Progress


@pytest.fixture
def by_index(user):
    user.study(("k = 3", 'k = "2..4"\nindex = "davies-bouldin"\nrestarts = 1'))
    return user


def test_a_range_and_an_index_choose_k(by_index):
    code, out, err = by_index("run", "study.toml")
    assert code == 0
    assert out.startswith("heart: 3 clusters by fuzzy-c-means in ")
    assert "Number of clusters by davies-bouldin (lower is better):" in out
    assert "<- chosen" in next(line for line in out.splitlines() if line.startswith("  K = 3"))
    assert "K = 3 has the lowest Davies-Bouldin index among 3 values of K from 2 to 4" in out
    assert err.splitlines()[-1].startswith("choosing k: fit ")


def test_programs_get_the_choice_too(by_index):
    found = json.loads(by_index("run", "study.toml", "--json")[1])
    assert found["k"] == found["selection"]["k"] == 3
    assert found["selection"]["criterion"] == "index"
    assert sum(found["rows"]) == 80
    assert fc.load(found["model"]).n_clusters == 3


def test_left_open_altogether_the_default_criterion_chooses(user):
    user.study(("k = 3", 'k = "auto"'))
    found = json.loads(user("run", "study.toml", "--json")[1])
    assert found["selection"]["criterion"] == "evidence"
    assert found["k"] == 3


def test_an_elbow_is_told_as_one(user):
    user.study(("k = 3", 'k = "2..6"\nindex = "partition-entropy"\nrule = "elbow"\nrestarts = 1'))
    code, out, _ = user("run", "study.toml")
    assert code == 0
    assert "has the lowest partition entropy" in out or "the curve of the partition entropy bends most" in out


def test_report_writes_one_page_and_says_where(by_index):
    by_index("run", "study.toml", "--quiet")
    assert by_index("report", "runs/heart") == (0, "runs/heart/report.html\n", "")
    assert by_index("report", "runs/heart", "--out", "page.html") == (0, "page.html\n", "")
    code, _, err = by_index("report", "runs/heart", "--out", "runs")
    assert (code, err) == (2, "fedclust: runs is a folder; name the file to write, such as runs/report.html\n")
    pages = [(by_index.folder / name).read_bytes() for name in ("runs/heart/report.html", "page.html")]
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("argument", "told"),
    [("nowhere", "nowhere does not exist"), (".", "is not a run folder"), ("runs/heart", "fedclust resume runs/heart")],
)
def test_report_of_what_is_no_finished_run_is_refused(user, argument, told):
    user("run", "study.toml", "--quiet")
    (user.folder / "runs/heart/metrics.json").unlink()
    code, out, err = user("report", argument)
    assert (code, out) == (2, "")
    assert told in err


def test_a_flat_or_infinite_curve_is_still_told():
    curve = [{"k": 2, "value": "inf"}, {"k": 3, "value": 1.0}, {"k": 4, "value": 1.0}]
    told = result_summary.format_choice(
        {"k": 3, "best": "min", "name": "xie-beni", "curve": curve, "why": "So.", "stability": None}
    )
    assert "K = 2" in told
    assert "inf" in told


def test_while_choosing_there_is_no_guess(capsys):
    progress = Progress(tol=1e-6, max_iter=50, choosing=True)
    for number in (1, 2, 3, 1, 2):
        progress({"round": number, "shift": 0.1**number})
    assert progress.progress_text == "round 2 of fit 2"
    assert "of at most" not in capsys.readouterr().err


def test_each_value_of_a_curve_is_told_with_its_own_digits():
    curve = [{"k": 2, "value": 0.606}, {"k": 3, "value": 2871.4}, {"k": 4, "value": float("inf")}]
    told = result_summary.format_choice(
        {"k": 2, "best": "min", "name": "xie-beni", "curve": curve, "why": "So.", "stability": None}
    )
    shown = {line.split()[2]: line.split()[3] for line in told.splitlines() if line.startswith("  K = ")}
    assert shown == {"2": "0.606", "3": "2,871", "4": "inf"}
