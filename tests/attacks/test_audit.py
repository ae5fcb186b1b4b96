"""`fedclust audit` on real run folders: finished ones, in every mode, and folders that are none."""

import json
import sys

import numpy as np
import pytest

from fedclust.cli.main import main

STUDY = """\
name = "audited"
scale = "standardise"

[cluster]
method = "{method}"
k = 4
max_iter = 8

[privacy]
aggregation = "{mode}"
"""


@pytest.fixture
def ran(tmp_path, monkeypatch, capsys):
    """A finished run folder of a study in some mode."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    centers = rng.normal(size=(4, 4))

    def run(mode="plain", method="k-means", opening="exact"):
        text = STUDY.format(mode=mode, method=method)
        text += f'opening = "{opening}"\n' if method == "k-means" else ""
        for i in range(4):
            rows = rng.normal(size=(30, 4)) + centers[rng.integers(4, size=30)]
            np.savetxt(f"s{i}.csv", rows, delimiter=",", header="a,b,c,d", comments="", fmt="%.17g")
            text += f'\n[sites.s{i}]\nsource = "s{i}.csv"\n'
        (tmp_path / "study.toml").write_text(text)
        assert main(["run", "study.toml", "--quiet", "--out", f"runs/audited-{mode}-{method}-{opening}"]) == 0
        capsys.readouterr()
        return tmp_path / "runs" / f"audited-{mode}-{method}-{opening}"

    return run


def audited(capsys, folder):
    code = main(["audit", str(folder), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def recovered(found, attack, observer="coordinator"):
    (one,) = [v for v in found["attacks"] if (v["attack"], v["observer"]) == (attack, observer)]
    return one["exact"]


def test_a_plain_run_is_told_to_have_lost_rows(ran, capsys):
    found = audited(capsys, ran())
    assert recovered(found, "a") > 0
    assert found["checked"]
    assert "Anyone who runs the coordinator" in found["verdict"]


def test_a_run_that_opens_sums_above_a_floor_loses_no_row_to_differences_of_its_sums(ran, capsys):
    exact, floored = (audited(capsys, ran("secure", opening=opening)) for opening in ("exact", "floored"))
    assert recovered(exact, "a4") >= recovered(exact, "a3") > 0
    assert recovered(floored, "a4") == recovered(floored, "a3") == 0


def test_a_secure_run_has_lost_none_by_site(ran, capsys):
    found = audited(capsys, ran("secure"))
    assert recovered(found, "a") == 0


def test_sums_that_parties_may_leave_are_looked_at_too(ran, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "STUDY", STUDY.replace("max_iter = 8", "max_iter = 8\nquorum = 3"))
    found = audited(capsys, ran("secure"))
    assert recovered(found, "a3") > 0


def test_a_blind_coordinator_has_nothing_and_the_leading_site_is_looked_at_by_itself(ran, capsys):
    found = audited(capsys, ran("blind"))
    assert recovered(found, "a") == recovered(found, "a3") == 0
    assert [v for v in found["attacks"] if v["observer"] == "leading site"]


def test_an_audit_leaves_the_run_as_it_was_and_tells_in_words(ran, capsys):
    folder = ran()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["audit", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "What the coordinator saw" in told
    assert "recovered exactly" in told
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_the_rows_points_are_found_but_not_checked(ran, capsys):
    folder = ran()
    (folder.parent.parent / "s1.csv").unlink()
    found = audited(capsys, folder)
    assert not found["checked"]
    assert found["verdict"].startswith("Not checked, because the rows are missing or have changed")
    assert recovered(found, "a") is None


def test_what_is_no_finished_run_is_refused_in_a_sentence(ran, tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err
    folder = ran()
    (folder / "metrics.json").unlink()
    assert main(["audit", str(folder)]) == 2
    assert "is not finished; continue with: fedclust resume" in capsys.readouterr().err
