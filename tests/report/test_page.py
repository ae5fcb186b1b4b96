"""The page as a text: what it says, what it never says, and the same bytes every time."""

import html
import html.parser
import json
import re
import shutil

import pytest

from fedclust.app import run_folder
from fedclust.core.errors import StudyError
from fedclust.report import page, read_run
from fedclust.report.chart_axes import decades, ticks
from fedclust.report.markup import Markup, escape_node, tag
from fedclust.report.run_facts import without_secrets


@pytest.fixture
def copy(folders, tmp_path):
    """A run folder to spoil."""
    return shutil.copytree(folders["rows"], tmp_path / "run")


def changed(folder, name, change):
    path = folder / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return page(read_run(folder))


def test_the_same_run_gives_the_same_bytes(folders):
    for folder in folders.values():
        assert page(read_run(folder)) == (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_complete_in_itself(folders):
    for folder in folders.values():
        found = (folder / "report.html").read_text(encoding="utf-8")
        assert not re.search(r"https?://|//\w|@import|<script|javascript:|url\((?!#)", found)
        assert "default-src 'none'" in html.unescape(found)


def test_every_part_is_there_or_says_why_not(folders):
    rows, columns = ((folders[name] / "report.html").read_text(encoding="utf-8") for name in ("rows", "columns"))
    for name in ("choice", "clusters", "quality", "sites", "course", "leaving", "notes", "again"):
        assert f'<section id="{name}"' in rows
        assert f'<section id="{name}"' in columns
    assert "no map over all columns can be drawn" in columns
    assert "there are no counts by site" in columns
    assert "so there was nothing to choose" in columns
    assert "every row belongs to exactly one cluster" in columns


def test_the_headline_is_in_plain_words(folders):
    rows = (folders["rows"] / "report.html").read_text(encoding="utf-8")
    assert "<h1>clinics: 3 clusters in 240 rows at 3 sites</h1>" in rows
    assert "to the last bit" in rows
    assert "K = 3 has the lowest fuzzy Davies-Bouldin index" in rows


def test_units_and_reasons_are_told(folders):
    rows = (folders["rows"] / "report.html").read_text(encoding="utf-8")
    assert "age (years)" in rows
    assert "the weighted sum of the rows of each cluster" in rows
    assert "nhs, floor 10" in rows


def test_hidden_counts_are_hidden_and_do_not_follow_from_totals(folders):
    found = json.loads((folders["rows"] / "analysis.json").read_text())
    cells = found["composition"]["sites"]
    if any(None in own for own in cells.values()):
        assert "<em>hidden</em>" in (folders["rows"] / "report.html").read_text(encoding="utf-8")
    for cluster in range(found["k"]):
        assert sum(own[cluster] is None for own in cells.values()) != 1


def test_all_markup_is_closed(folders):
    class Reader(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, name, _):
            if name not in {"meta", "link", "br", "hr"}:
                self.open.append(name)

        def handle_endtag(self, name):
            assert self.open.pop() == name

    for folder in folders.values():
        reader = Reader()
        reader.feed((folder / "report.html").read_text(encoding="utf-8"))
        assert reader.open == []


def test_notes_are_shown_and_escaped(copy):
    def add(document):
        document["notes"] = ["Not lossless: 1 < 2 & <img src=x onerror=alert(1)>"]
        document["lossless"] = False

    found = changed(copy, "analysis.json", add)
    assert "1 &lt; 2 &amp; &lt;img src=x onerror=alert(1)&gt;" in found
    assert "<img" not in found
    assert "not exactly that of the pooled rows" in found


def test_values_that_are_no_numbers_are_told(copy):
    def spoil(document):
        document["selection"]["curve"][0]["value"] = "inf"
        document["selection"]["scores"][0]["value"] = "inf"
        document["indices"]["xie-beni"]["value"] = "nan"

    found = changed(copy, "analysis.json", spoil)
    assert "infinite" in found
    assert "NaN" not in found


def test_clusters_whose_sums_stayed_closed_are_told_and_not_compared(copy):
    def close(document):
        sizes = document["sizes"]["rows"]
        document["sizes"] |= {"rows": [None, *sizes[1:]], "total": sum(sizes)}
        document["map"]["means"][0] = document["map"]["covariances"][0] = None
        document["convergence"] |= {"objectives": [63.194, None], "objective": 163.68}

    found = changed(copy, "analysis.json", close)
    assert "not known</text>" in found
    assert "The sizes add up to" in found
    assert "Validation indices over the rows that the sizes count" in found
    assert "63.194" not in found
    assert "add up to about 163.68" in found


def test_many_sites_and_clusters_find_room(copy):
    def grow(document):
        own = [5] * 30
        document["composition"]["sites"] = {f"site {i}": own if i % 2 else [None] * 30 for i in range(60)}

    assert "The figure shows the first 40 of 60 sites" in changed(copy, "analysis.json", grow)


def test_rounds_whose_movement_is_not_known_are_not_denied(copy):
    def forget(document):
        document["convergence"] |= {"shifts": [], "rounds": 7}

    found = changed(copy, "analysis.json", forget)
    assert "The run took 7 rounds. How far the centres moved is not known." in found


def test_an_answer_sent_twice_is_told(copy):
    def again(document):
        document["sites"]["north"]["messages"] += 2

    assert "2 answers were sent a second time" in changed(copy, "metrics.json", again)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "analysis.json").unlink(), "has no analysis.json"),
        (lambda folder: (folder / "analysis.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "metrics.json").write_text('{"format": "x"}'), "another version"),
        (lambda folder: (folder / "metrics.json").unlink(), "is not finished"),
    ],
)
def test_a_folder_that_cannot_be_read_is_told_in_a_sentence(copy, spoil, told):
    spoil(copy)
    with pytest.raises(StudyError, match=told):
        read_run(copy)


@pytest.mark.parametrize(
    "secret",
    [
        'database = "postgresql://me:hunter2@db.example/x"',
        'database = "host=db password=hunter2 user=me"',
        "database = \"host=db password='hunter2'\"",
        'sql = "SELECT 1", token = "hunter2"',
    ],
)
def test_passwords_are_not_passed_on(secret):
    assert "hunter2" not in without_secrets(secret)
    assert without_secrets('source = "a.csv"') == 'source = "a.csv"'


def test_markup_escapes_text_and_attributes():
    assert tag("p", "<b>", title='"') == '<p title="&quot;">&lt;b&gt;</p>'
    assert escape_node([Markup("<br>"), "&"]) == "<br>&amp;"


def test_ticks_are_round_and_few():
    assert ticks(0.0, 0.0) == [0.0]
    assert ticks(-1.3, 2.2, 5) == [-1.0, 0.0, 1.0, 2.0]
    assert len(decades(1e-12, 1e3)) <= 6


def test_a_run_of_an_older_version_still_tells_its_result(copy):
    (copy / "analysis.json").unlink()
    assert run_folder.Run.find(copy).analysis is None


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_the_page_says_who_could_see_what(copy, mode):
    assert f"Aggregation was {mode}:" in changed(copy, "analysis.json", lambda found: found.update(aggregation=mode))


def test_an_older_run_was_plain(copy):
    assert "Aggregation was plain:" in changed(copy, "analysis.json", lambda found: found.pop("aggregation"))
