"""Runs: results are kept by inputs and versions, an interrupted run resumes, a second run gives the same bytes."""

import io
import json

import numpy as np
import pytest

from fedclust.core.errors import RunFailed, StudyError
from papers import versions
from papers.reproduction import catalogue, published, running, runs_art, store
from papers.reproduction.__main__ import main
from papers.reproduction.assembling import summary
from papers.reproduction.store import NotKept, Store, digest, part, part_key
from papers.reproduction.workbench import Bench

CALLS = []


@part("drawn", paper="paper1", methods=("c-means",))
def drawn(seed, size=3):
    CALLS.append(seed)
    if seed == 99:
        raise KeyboardInterrupt
    return {"values": np.random.default_rng(seed).random(size)}


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def bench(folder, **how):
    return Bench(Store(folder), quick=True, told=io.StringIO(), **how)


def test_a_part_is_computed_once(tmp_path):
    first = bench(tmp_path).all(drawn, [{"seed": 0}, {"seed": 1}])
    again = bench(tmp_path)
    assert again.all(drawn, [{"seed": 1}, {"seed": 0}]) == first[::-1]
    assert again.fresh == 0
    assert CALLS == [0, 1]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path).all(drawn, [{"seed": 0}, {"seed": 99}, {"seed": 2}])
    later = bench(tmp_path)
    later.all(drawn, [{"seed": 0}, {"seed": 2}])
    assert later.fresh == 1
    assert CALLS == [0, 99, 2]


def test_a_part_cut_short_while_written_is_computed_again(tmp_path):
    bench(tmp_path).one(drawn, seed=0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text()[:20])
    assert bench(tmp_path).one(drawn, seed=0) == bench(tmp_path).one(drawn, seed=0)
    assert CALLS == [0, 0]


def test_other_inputs_other_versions_and_other_rows_are_another_result(monkeypatch):
    key = part_key(drawn, {"seed": 0})
    assert part_key(drawn, {"seed": 1}) != key
    with monkeypatch.context() as changed:
        raised = {**versions.method_versions(), "c-means": versions.MethodVersion(2, (), "")}
        changed.setattr(store, "method_versions", lambda: raised)
        assert part_key(drawn, {"seed": 0}) != key
    with monkeypatch.context() as changed:
        changed.setattr(store, "paper_versions", lambda: {"paper1": 2})
        assert part_key(drawn, {"seed": 0}) != key
    assert part_key(drawn, {"seed": 0}) == key
    on_data = part("on data", paper="paper1", data=("data",))(lambda data: data)
    monkeypatch.setattr(store, "digest", lambda name: f"rows of {name}")
    before = part_key(on_data, {"data": "a"})
    monkeypatch.setattr(store, "digest", lambda name: f"other rows of {name}")
    assert part_key(on_data, {"data": "a"}) != before


def test_a_renamed_function_keeps_its_results():
    renamed = part("drawn", paper="paper1", methods=("c-means",))(lambda seed: seed)
    assert part_key(renamed, {"seed": 0}) == part_key(drawn, {"seed": 0})


def test_a_part_of_an_unknown_method_is_refused_where_it_is_declared():
    with pytest.raises(KeyError, match="no-such-method"):
        part("drawn", paper="paper1", methods=("no-such-method",))


def test_nothing_is_computed_where_only_kept_parts_are_wanted(tmp_path):
    bench(tmp_path).one(drawn, seed=0)
    only = bench(tmp_path, compute=False)
    assert only.one(drawn, seed=0)
    with pytest.raises(NotKept, match="1 of 2 parts"):
        only.all(drawn, [{"seed": 0}, {"seed": 5}])


def test_two_processes_find_what_one_finds(tmp_path):
    asked = [{"epsilon": 15.0, "seed": seed} for seed in (0, 1)]
    alone = bench(tmp_path / "one").all(runs_art.noised, asked)
    assert bench(tmp_path / "two", jobs=2).all(runs_art.noised, asked) == alone


def test_an_experiment_that_fails_does_not_stop_the_others(tmp_path):
    def broken(_):
        raise RunFailed("the centres ran away")

    entries = [catalogue.Entry("paper1-fig1", broken, "1 s", "1 s"), small(0)]
    whole, times = running.carried_out(entries, Store(tmp_path), quick=True, told=io.StringIO())
    assert times["failed"] == ["paper1-fig1: the centres ran away"]
    assert [own["name"] for own in whole["experiments"]] == ["paper1-table1"]


def small(run):
    """Paper 1's Fig. 1 as an experiment on drawn numbers, so that no data is needed."""

    def experiment(a_bench):
        found = a_bench.found("paper1-table1")
        for seed, share in enumerate(("0.25", "0.50", "0.75", "1.00")):
            found.cell("displacement", "xclara", share, a_bench.one(drawn, seed=run + seed, size=40)["values"])
        found.best("xclara", "ours", [0.9929], ["ARI with the classes | xclara | 1.00"])
        found.best("s-set1", "ours", [0.9], ["ARI with the classes | s-set1 | 0.25"])
        found.figure("one", "a line", ("x", "y"), {"a": [[0, 1.0], [1, 0.1]]}, log=True)
        return found

    return catalogue.Entry("paper1-table1", experiment, "1 s", "1 s")


def test_a_second_run_writes_the_same_bytes_and_says_where_we_lose(tmp_path):
    pages = []
    for folder in ("one", "two"):
        cache = Store(tmp_path / f"cache-{folder}")  # nothing kept from the run before
        whole, times = running.carried_out([small(0)], cache, quick=True, told=io.StringIO())
        running.written(whole, times, tmp_path / folder)
        pages.append(
            {
                name: (tmp_path / folder / name).read_bytes()
                for name in ("results.json", "figures/paper1-table1-one.svg")
            }
        )
    assert pages[0] == pages[1]
    document = json.loads(pages[0]["results.json"])
    assert [own["row"] for own in document["where we lose"]] == ["s-set1"]
    paper = document["papers"]["paper1"]
    assert (paper["held"], paper["measured"], paper["claims"]) == (32, 4, 0)
    cells = {cell["at"]: cell for cell in document["experiments"][0]["cells"]}
    assert cells["displacement | xclara | 1.00"]["why"].startswith("computed with --quick, with fewer repeats")
    assert cells["displacement | xclara | 0.25"]["why"].startswith("other random streams")
    assert "mean" not in cells["displacement | s-set1 | 0.25"]
    page = (tmp_path / "two" / "index.html").read_text()
    assert (
        page.index("Where we lose") < page.index("Printed numbers that we reproduce") < page.index('id="paper1-table1"')
    )


def test_what_is_not_kept_or_fails_is_named_and_the_rest_has_its_page(tmp_path):
    def failing(_):
        raise MemoryError("no room")

    entries = [small(0), catalogue.Entry("paper1-fig1", failing, "1 s", "1 s")]
    whole, times = running.carried_out(entries, Store(tmp_path), quick=True, told=io.StringIO())
    assert whole["not computed"] == ["paper1-fig1"]
    assert times["failed"] == ["paper1-fig1: MemoryError('no room')"]
    assert "not computed: paper1-fig1" in summary(whole)
    page = running.written(whole, times, tmp_path / "page").read_text()
    assert "missing from the counts: paper1-fig1" in page
    nothing, _ = running.carried_out(
        entries[:1], Store(tmp_path / "new"), quick=True, kept_only=True, told=io.StringIO()
    )
    assert nothing["not computed"] == ["paper1-table1"]


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """A page of one experiment in full that depends on a data set, on one that is not at hand, and on versions."""
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    np.savez(tmp_path / "few_rows.npz", X=np.eye(3), y=np.arange(3), classes=np.array(["a", "b", "c"]))
    whole, times = running.carried_out([small(0)], Store(tmp_path / "a"), quick=False, told=io.StringIO())
    times["paper1-table1"]["depends on"] |= {"data/few_rows": digest("few_rows"), "data/no_such_rows": None}
    whole["experiments"][0]["absent"] = {"no_such_rows": "not at hand"}
    running.written(whole, times, tmp_path / "page")
    return whole, times


def renewed(folder, *entries, **how):
    """The table of a page that is renewed, as it is written; None where it is not there."""
    how = {"quick": False, **how}
    whole, times = running.carried_out(entries, Store(folder / "b"), onto=folder / "page", told=io.StringIO(), **how)
    found = {own["name"]: json.dumps([own, times[own["name"]]]) for own in whole["experiments"]}
    assert ("paper1-table1" in found) != ("paper1-table1" in whole["not computed"])
    return found.get("paper1-table1")


def test_a_page_is_renewed_in_part_and_the_rest_stays_byte_for_byte(tmp_path, shown):
    whole, times = shown
    assert renewed(tmp_path) == json.dumps([whole["experiments"][0], times["paper1-table1"]])


def test_what_is_computed_anew_counts_and_what_is_shown_stands_in_for_what_is_not_kept_or_quick(tmp_path, shown):
    as_it_was = renewed(tmp_path)
    assert renewed(tmp_path, small(5)) != as_it_was
    assert renewed(tmp_path, small(7), kept_only=True) == as_it_was
    assert renewed(tmp_path, small(5), quick=True) == as_it_was


def test_what_needs_no_run_is_read_anew_even_where_all_else_is_quick(tmp_path, shown):
    whole, times = shown
    times["paper4-table1"] = {**times["paper1-table1"], "printed": published.printed("paper4"), "depends on": {}}
    whole["experiments"].append({**whole["experiments"][0], "name": "paper4-table1", "absent": {}, "notes": ["of old"]})
    running.written({**whole, "experiments": []}, times, tmp_path / "page")
    (tmp_path / "page" / "results.json").write_text(json.dumps(whole))
    asked = catalogue.named("paper4-table1")
    again, _ = running.carried_out(asked, Store(tmp_path), quick=True, onto=tmp_path / "page", told=io.StringIO())
    assert next(own for own in again["experiments"] if own["name"] == "paper4-table1")["notes"] != ["of old"]


@pytest.mark.parametrize(
    "changed",
    [
        {"data/few_rows": "other"},
        {"data/few_rows": None},
        {"data/gone": "0"},
        {"method/no-such": "1"},
        {"method/c-means": "0"},
        {"paper/paper1": "0"},
    ],
)
def test_what_depends_on_other_rows_or_versions_is_not_shown_again(tmp_path, shown, changed):
    whole, times = shown
    times["paper1-table1"]["depends on"] |= changed
    running.written(whole, times, tmp_path / "page")
    assert renewed(tmp_path) is None


def test_what_lacked_rows_that_are_at_hand_now_is_not_shown_again(tmp_path, shown):
    whole, times = shown
    whole["experiments"][0]["absent"] = {"torch": "not installed"}
    running.written(whole, times, tmp_path / "page")
    assert renewed(tmp_path) is None


def test_numbers_that_are_corrected_are_not_shown_as_they_were(tmp_path, shown):
    whole, times = shown
    times["paper1-table1"]["printed"] = "other"
    running.written(whole, times, tmp_path / "page")
    assert renewed(tmp_path) is None


def test_there_must_be_a_page_to_renew(tmp_path):
    with pytest.raises(StudyError, match="there is no page"):
        running.carried_out([], Store(tmp_path), quick=False, onto=tmp_path / "nowhere", told=io.StringIO())


def test_an_experiment_depends_on_its_parts_and_on_what_it_computes_itself(tmp_path, monkeypatch):
    (entry,) = catalogue.named("paper3-noise")
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    a_bench = bench(tmp_path)
    monkeypatch.setattr(a_bench, "at_hand", lambda *_: [])
    entry.run(a_bench)
    assert set(a_bench.dependencies) >= {"paper/paper3", "method/ranks", "method/fcac", "method/local-noise"}


def test_a_run_in_full_owes_a_reason_for_every_disagreement(tmp_path):
    whole, _ = running.carried_out([small(0)], Store(tmp_path), quick=False, told=io.StringIO())
    cells = {cell["at"]: cell for cell in whole["experiments"][0]["cells"]}
    assert cells["displacement | xclara | 1.00"]["why"] == "not explained yet"
    assert "disagreements without a reason:\n  paper1-table1: displacement | xclara | 1.00" in summary(whole)


def test_the_command_lists_what_there_is_and_names_what_there_is_not(capsys):
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {own["name"] for own in listed} == set(catalogue.everything())
    assert all(own["full"] and own["quick"] for own in listed)
    assert main(["paper9-table1"]) == 2
    assert "there is no experiment 'paper9-table1'" in capsys.readouterr().err
