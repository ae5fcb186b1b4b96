"""Kits of a private study set the site's budget to the study's epsilon."""

from pathlib import Path

from fedclust.app.enrol import Enrolment, site_file_text
from fedclust.app.study import parse_study
from fedclust.site.site_file import make_key, read_public_key, read_site_file

STUDY = """\
name = "heart"
columns = ["age"]
bounds = [0, 100]
[cluster]
method = "k-means"
k = 2
[privacy]
aggregation = "secure"
epsilon = 1.5
delta = 1e-7
[sites.north]
[sites.south]
[sites.west]
"""


def site_file(folder: Path, text: str):
    public = read_public_key(make_key(folder / "identity"))
    enrolment = Enrolment(parse_study(text, folder=Path(), served=True), "files")
    (folder / "site.toml").write_text(site_file_text("north", {"north": public}, public, enrolment))
    return read_site_file(folder / "site.toml")


def test_a_kit_of_a_private_study_has_its_epsilon_as_budget(tmp_path):
    policy = site_file(tmp_path, STUDY).policy
    assert (policy.epsilon, policy.delta) == (1.5, 1e-7)


def test_a_kit_of_another_study_has_no_budget(tmp_path):
    plain = STUDY.replace("epsilon = 1.5\ndelta = 1e-7\n", "")
    assert site_file(tmp_path, plain).policy.epsilon == 0
