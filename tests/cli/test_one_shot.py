"""Methods of one round, from a study to its report."""

import pytest


@pytest.mark.parametrize("method", ["k-fed", "mufc"])
def test_a_study_of_one_shot_runs_to_its_report(user, method):
    user.study(('"fuzzy-c-means"', f'"{method}"'))
    code, out, err = user("run", "study.toml", "--out", "runs/once")
    assert code == 0
    assert "round 1 of at most 1" in err
    assert "Not lossless" in out
    assert user("report", "runs/once")[0] == 0


def test_a_start_is_not_for_such_methods(user):
    user.study(('"fuzzy-c-means"', '"k-fed"'), ("k = 3", 'k = 3\ninit = "box"'))
    code, _, err = user("run", "study.toml")
    assert code == 2
    assert "method 'k-fed' has no setting init" in err
