"""What a plan says of studies over columns whose messages one site cannot rehearse alone."""

import numpy as np
import pytest

from fedclust.app.site_plan import make_plan
from fedclust.app.study import parse_study
from fedclust.site.policy import PROFILES

STUDY = """
name = "joint"
split = "columns"
id = "who"
{align}
[cluster]
method = "k-means"
k = 3
init = "box"
max_iter = 5
{opens}
[sites.a]
columns = ["x"]
[sites.b]
columns = ["y"]
[sites.c]
columns = ["z"]
"""


@pytest.fixture
def source(tmp_path):
    rows = np.column_stack([np.arange(40), np.random.default_rng(0).normal(size=40)]).tolist()
    path = tmp_path / "a.csv"
    path.write_text("who,x\n" + "".join(f"{int(who)},{x!r}\n" for who, x in rows))
    return path


def counted(source, align="", opens=""):
    text = STUDY.replace("{align}", align).replace("{opens}", opens)
    study = parse_study(text, folder=source.parent, served=True)
    found = make_plan(study, "a", source, PROFILES["none"])
    return {question.name: question.times for question in found.questions}


def test_messages_of_an_alignment_are_counted(source):
    found = counted(source, align="[align]")
    assert found["alignment.send_own_list"] == 1
    assert found["alignment.pass_list"] == 2  # one for each other site
    assert "roster.offer" in found


def test_messages_of_a_run_that_opens_labels_are_counted_in_place_of_distances(source):
    found = counted(source, opens='opens = "labels"')
    assert "column_split.measure_distances" not in found
    assert "column_split.measure_distances" in counted(source)
    assert found["column_labels.move_to_label_means"] == 5
    assert found["column_labels.enter_comparison"] == 6
    assert found["column_labels.continue_comparison"] == 6 * 10  # two, seven levels of a tree, one for three clusters
