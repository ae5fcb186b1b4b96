"""What a study must say before remote sites can run it."""

from pathlib import Path

import pytest

from fedclust.app.served_study import UnreachedSites, open_served_study
from fedclust.app.study import parse_study
from fedclust.core.errors import StudyError

STUDY = """
name = "halves"
split = "columns"
[cluster]
method = "k-means"
k = {k}
[sites.north]
columns = ["a"]
[sites.south]
columns = ["b"]
"""


def open_halves(k):
    return open_served_study(
        parse_study(STUDY.format(k=k), folder=Path(), served=True), UnreachedSites(("north", "south"))
    )


def test_a_search_for_k_over_a_column_split_is_refused_before_any_question():
    assert open_halves("3").study.split == "columns"
    with pytest.raises(StudyError, match=r"set k in \[cluster\] to a number"):
        open_halves('"2..4"')
