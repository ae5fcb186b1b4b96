"""What can be seen of a run from outside: its status, its log, its metrics; and that no value is among it."""

import json
import resource
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedclust import Federation, KMeans
from fedclust.app.run_folder import Run
from fedclust.cli.coordinate_verbs import format_status
from fedclust.cli.main import main
from fedclust.engines.metrics_endpoint import MetricsEndpoint, prometheus_text
from fedclust.engines.run_status import EventLog, ObservedEngine, RunStatus, combine_listeners, read_status
from fedclust.testing import Faulty

ROWS = {name: np.random.default_rng(i).normal(size=(20, 2)) + 7.25 for i, name in enumerate(("north", "south", "west"))}


def run(tell, plan=lambda *_: None, **options):
    fed = Federation.local(ROWS)
    fed.use_engine(ObservedEngine(Faulty(fed.engine, plan), tell))
    return KMeans(2, init="careful", max_iter=2, random_state=0, **options).fit(fed)


def test_a_status_counts_answers_and_bytes_and_outlives_the_process(tmp_path):
    status = RunStatus(tmp_path / "status.json", ROWS, run="r")
    run(status)
    status("state", state="finished")
    found = read_status(tmp_path / "status.json")
    assert found["state"] == "finished"
    assert found["steps"] == found["step"] == found["sites"]["north"]["step"] > 5
    assert found["sites"]["north"]["answers"] == found["steps"]
    again = RunStatus(tmp_path / "status.json", ROWS)
    assert again.document["sites"] == found["sites"]
    assert again.document["state"] == "running"


def test_refusals_silences_and_waiting_are_told_by_site():
    status = RunStatus(None, ROWS)
    faults = {(3, "south"): "refuse", (4, "west"): "silent"}
    run(status, lambda step, party: faults.get((step, party)), quorum=2)
    assert status.document["sites"]["south"]["refusals"] == {"failed": 1}
    assert status.document["sites"]["west"]["silences"] == 1
    assert status.document["waiting"] == []


def test_a_way_to_the_sites_that_had_to_be_laid_again_shows_at_once(tmp_path):
    status = RunStatus(tmp_path / "status.json", ROWS)
    own = Run(tmp_path)
    for number in (1, 2, 3):
        status("job", number=number, sites=list(ROWS))
        found = read_status(tmp_path / "status.json")
        assert found["jobs"] == number
        assert ("NVIDIA FLARE started" in format_status(own, found)) == (number > 1)
    assert "NVIDIA FLARE started 3 jobs in this run." in format_status(own, found)


def test_a_log_is_one_json_document_a_line_and_holds_no_value(tmp_path):
    log = EventLog(tmp_path / "log.jsonl", "r")
    model = run(combine_listeners(log, RunStatus(None, ROWS)))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines} == {"asked", "answered", "settled"}
    known = {"time", "run", "event", "step", "question", "sites", "need", "site", "bytes", "seconds"}
    assert {key for line in lines for key in line} == known
    text = (tmp_path / "log.jsonl").read_text()
    assert not any(f"{value:.3f}"[:5] in text for value in model.cluster_centers_.flat)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_log_that_cannot_grow_says_so_once_and_the_run_goes_on(capsys):
    log = EventLog(Path("/dev/full"), "r")
    assert run(log).n_iter_ == 2
    log.close()
    assert capsys.readouterr().err == (
        "fedclust: cannot write to the log /dev/full (no space left on device); the run continues\n"
    )


def test_a_line_that_found_too_little_room_is_taken_back(tmp_path):
    path = tmp_path / "log.jsonl"
    with resource_limit(resource.RLIMIT_FSIZE, 250):
        log = EventLog(path, "r")
        for step in range(9):
            log("settled", step=step, seconds=0.5)
        log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]


@contextmanager
def resource_limit(which, size):
    before = resource.getrlimit(which)
    resource.setrlimit(which, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def test_metrics_are_told_on_loopback_and_nothing_else_is():
    status = RunStatus(None, ROWS)
    with MetricsEndpoint(status, 0) as there:
        run(status)
        url = f"http://127.0.0.1:{there.port}"
        with urllib.request.urlopen(f"{url}/metrics") as page:
            text = page.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/")
    assert text == prometheus_text(status.snapshot())
    answers = status.document["sites"]["south"]["answers"]
    assert f'fedclust_answers_total{{site="south"}} {answers}' in text
    assert text.count("# TYPE") == text.count("# HELP") == 9


def test_a_run_that_nobody_works_at_is_shown_as_interrupted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        np.savetxt(f"{name}.csv", rows, delimiter=",", header="a,b", comments="")
    sites = "".join(f'[sites.{name}]\nsource = "{name}.csv"\n' for name in ROWS)
    (tmp_path / "study.toml").write_text(f'name = "x"\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}')
    assert main(["run", "study.toml", "--quiet"]) == 0
    assert main(["status", "runs/x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "finished"
    assert set(found["sites"]) == set(ROWS)
    path = tmp_path / "runs" / "x" / "status.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    assert main(["status", "runs/x"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("runs/x: interrupted, step ")
    assert "south" in told
    path.unlink()
    assert main(["status", "runs/x"]) == 2
