"""`fedclust update`: rounds over runs of sites in one process, killed and not."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.run_folder import Run
from fedclust.cli.main import main
from fedclust.core.envelope import Call, Refusal
from fedclust.core.run_series import next_run_name, parse_series
from fedclust.site.server import SiteServer
from fedclust.site.stored_state import SavedState

NAMES = ("north", "south", "west")
STUDY = """\
name = "heart"
columns = ["age", "bp"]
[cluster]
{cluster}
{sites}
"""
ROWS = 300  # few numbers for so many values: a site with rules takes part to the end
CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [30.0, 30.0]])


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def batch(seed, count=ROWS):
    """New rows of each site; a fourth group comes with the second round."""
    rng = np.random.default_rng(seed)
    groups = CENTRES[: 3 + (seed > 0)]
    return {name: groups[rng.integers(len(groups), size=count)] + rng.normal(size=(count, 2)) for name in NAMES}


def grown(seed):
    """All rows of each site so far."""
    rounds = [batch(number) for number in range(seed + 1)]
    return {name: np.concatenate([own[name] for own in rounds]) for name in NAMES}


def put(folder, rows, path="{}.csv"):
    for name, X in rows.items():
        np.savetxt(folder / path.format(name), X, delimiter=",", header="age,bp", comments="", fmt="%.17g")


def study(folder, cluster='method = "summary-clustering"'):
    sites = "\n".join(f'[sites.{name}]\nsource = "{name}.csv"' for name in NAMES)
    (folder / "study.toml").write_text(STUDY.format(cluster=cluster, sites=sites))


def at(*arguments):
    return main([*map(str, arguments), "--quiet"])


def alike(a, b, names):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


FOUND = ("nodes_", "node_rows_", "node_labels_", "scaled_nodes_")


def test_names_of_later_rounds_tell_the_series_and_begin_differently():
    first = "0123456789abcdef-" + "f" * 32
    second, third = next_run_name(first), next_run_name(next_run_name(first))
    assert [parse_series(run) for run in (first, second, third)] == [(first, 1), (first, 2), (first, 3)]
    assert len({run[:8] for run in (first, second, third)}) == 3
    assert second.partition("-")[2] == "f" * 32  # every call names the study
    for odd in ("a.b-x", ".2-x", "abcdefgh.2-x", "abcdefghi.1-x", "abcdefghi.²-x", "x"):
        assert parse_series(odd) == (odd, 1)


def test_rounds_by_command_are_rounds_of_the_model(tmp_path):
    here = fc.SummaryClustering()
    study(tmp_path)
    for number, verb in enumerate(("run", "update", "update")):
        put(tmp_path, batch(number))
        folder = tmp_path / ("heart" if not number else f"heart-{number + 1}")
        if number:
            before = tmp_path / ("heart" if number == 1 else f"heart-{number}")
            assert at(verb, before) == 0
        else:
            assert at(verb, tmp_path / "study.toml", "--out", folder) == 0
        here.partial_fit(fc.Federation.local(batch(number), columns=["age", "bp"]))
        assert alike(fc.load(folder / "model.json"), here, FOUND)
    assert here.n_clusters_ == 4
    assert here.node_rows_.sum() == 3 * 3 * ROWS


def test_a_table_that_grew_is_told_once_and_no_sums_are_asked_that_would_show_what_came(tmp_path):
    study(tmp_path)
    put(tmp_path, batch(0))
    at("run", tmp_path / "study.toml", "--out", tmp_path / "r")
    put(tmp_path, grown(1))
    at("update", tmp_path / "r")
    model = fc.load(tmp_path / "r-2" / "model.json")
    assert model.node_rows_.sum() == 2 * 3 * ROWS
    asked = {line.split('"handler": "')[1].split('"')[0] for line in ledger(tmp_path / "r-2" / "sites" / "north")}
    assert asked == {"bounds.count_rows", "summaries.summarise_rows"}
    analysis = Run.find(tmp_path / "r-2").analysis
    assert "absent" in analysis["indices"]
    assert sum(analysis["sizes"]["rows"]) == 2 * 3 * ROWS
    assert main(["report", str(tmp_path / "r-2")]) == 0


def ledger(folder):
    return (folder / "ledger.jsonl").read_text().splitlines()


def test_other_methods_take_the_table_as_a_batch(tmp_path):
    study(tmp_path, 'method = "k-means"\nk = 4\ninit = "box"\n[privacy]\nopening = "exact"')
    put(tmp_path, batch(0))
    at("run", tmp_path / "study.toml", "--out", tmp_path / "r")
    here = fc.load(tmp_path / "r" / "model.json")
    put(tmp_path, batch(1))
    assert at("update", tmp_path / "r", "--out", tmp_path / "elsewhere") == 0
    here.partial_fit(fc.Federation.local(batch(1), columns=["age", "bp"]))
    assert alike(fc.load(tmp_path / "elsewhere" / "model.json"), here, ("cluster_centers_", "cluster_sizes_"))
    assert here.cluster_sizes_.sum() == 2 * 3 * ROWS


def test_what_cannot_be_gone_on_from_is_refused_with_a_reason(tmp_path, capsys):
    study(tmp_path)
    put(tmp_path, batch(0))
    at("run", tmp_path / "study.toml", "--out", tmp_path / "r")

    def refused(folder):
        assert at("update", folder) == 2
        return capsys.readouterr().err

    assert "the same rows as in" in refused(tmp_path / "r")
    assert not (tmp_path / "r-2").exists()
    put(tmp_path, batch(1))
    assert at("update", tmp_path / "r") == 0
    assert "has already been updated" in refused(tmp_path / "r")
    (tmp_path / "r-2" / "metrics.json").unlink()
    assert "not finished" in refused(tmp_path / "r-2")
    assert "does not exist" in refused(tmp_path / "nowhere")
    study(tmp_path, 'method = "k-fed"\nk = 3')
    at("run", tmp_path / "study.toml", "--out", tmp_path / "k")
    assert "cannot be updated with new rows" in refused(tmp_path / "k")


def test_a_round_that_could_not_begin_can_be_begun_again(tmp_path, capsys):
    study(tmp_path)
    put(tmp_path, batch(0))
    at("run", tmp_path / "study.toml", "--out", tmp_path / "r")
    (tmp_path / "north.csv").write_text("age,bp\n1,x\n")
    assert at("update", tmp_path / "r") == 2
    put(tmp_path, batch(1))
    assert at("update", tmp_path / "r") == 0
    assert "again" not in capsys.readouterr().err


def desk(folder, X):
    from fedclust.site.policy import find_policy
    from fedclust.site.site_data import SiteData
    from fedclust.site.sources import open_source

    return SiteServer(SiteData("north", open_source(X, site="north")), find_policy("none"), folder=folder)


def question(run, step=1, *, fresh=False):
    from fedclust.algorithms.summary_clustering.summaries import Batch
    from fedclust.core.site_interface import View

    ask = Batch(View(np.full(2, 10, np.int32)), 5, fresh, damped=True)
    return Call(run, step, "summaries.summarise_rows", ask, "each", ("north",))


def test_a_desk_remembers_a_series_through_other_studies_and_restarts(tmp_path):
    first, other = "a" * 16 + "-study", "b" * 16 + "-other"
    X = batch(0)["north"]
    told = desk(tmp_path, X).answer(question(first, fresh=True)).release
    assert told.rows.sum() == ROWS
    assert told.has_no_memory
    assert (
        desk(tmp_path, X).answer(question(other, fresh=True)).release.rows.sum() == ROWS
    )  # another study's own memory
    more = grown(1)["north"]
    sealed = desk(tmp_path, more).answer(question(next_run_name(first)))
    assert sealed.release.rows.sum() == ROWS
    assert not sealed.release.has_no_memory
    # The same question after a restart gets the same bytes; the round before gets nothing more.
    assert desk(tmp_path, more).answer(question(next_run_name(first))).wire_bytes == sealed.wire_bytes
    assert desk(tmp_path, more).answer(question(first, step=2)) == Refusal("north", "round-passed")
    # The other study goes on where it was.
    assert desk(tmp_path, more).answer(question(next_run_name(other))).release.rows.sum() == ROWS
    assert desk(tmp_path, more).answer(question(next_run_name(next_run_name(first)))).release.rows.sum() == 0


def test_a_memory_of_another_version_is_not_read(tmp_path):
    from dataclasses import replace

    from fedclust.core import wire

    X = batch(0)["north"]
    desk(tmp_path, X).answer(question("a" * 16 + "-study", fresh=True))
    path = tmp_path / "state"
    path.write_bytes(wire.encode(replace(SavedState.read(path), layout=0)))
    with pytest.raises(fc.DataError, match="another version"):
        desk(tmp_path, X)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(fc.DataError, match="damaged"):
        desk(tmp_path, X)


DEADLY = """\
import os, signal, sys
from fedclust.cli.main import main
from fedclust.site import server
where, number, *arguments = sys.argv[1:]
left = int(number)
def dying(function, before):
    def called(*given, **named):
        global left
        left -= 1
        if before and not left:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*given, **named)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return called
if where == "answer":
    server.SiteServer.answer = dying(server.SiteServer.answer, False)
else:  # the memory is about to be written, or just was
    server.write_file = dying(server.write_file, where == "before-keep")
sys.exit(main(arguments))
"""


def process(*arguments, **how):
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)


def killed_rounds(tmp_path, places):
    study(tmp_path)
    put(tmp_path, batch(0))
    at("run", tmp_path / "study.toml", "--out", tmp_path / "r")
    put(tmp_path, batch(1))
    assert at("update", tmp_path / "r", "--out", tmp_path / "whole") == 0
    expected = fc.load(tmp_path / "whole" / "model.json")
    (tmp_path / "r" / "next").unlink()
    for where, number in places:
        folder = tmp_path / f"{where}-{number}"
        dead = process("-c", DEADLY, where, number, "update", tmp_path / "r", "--out", folder, "--quiet")
        assert dead.wait(300) == -signal.SIGKILL
        assert process("-m", "fedclust.cli.main", "resume", folder, "--quiet").wait(300) == 0
        assert alike(fc.load(folder / "model.json"), expected, FOUND)
        (tmp_path / "r" / "next").unlink()


def test_a_round_killed_inside_ends_with_the_same_bits(tmp_path):
    killed_rounds(tmp_path, [("before-keep", 2)])


@pytest.mark.slow
def test_a_round_killed_here_and_there_ends_with_the_same_bits(tmp_path):
    places = [("answer", 1), ("answer", 3), ("answer", 6), ("before-keep", 1), ("keep", 1), ("keep", 3)]
    killed_rounds(tmp_path, places)
