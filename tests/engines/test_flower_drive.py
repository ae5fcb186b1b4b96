"""What a ServerApp makes of its run configuration, and of a run folder that is there already."""

import shutil
import time

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

from federation_by_files import NAMES, ByFiles
from test_rounds import alike, expected, made, put

import fedclust as fc
from fault_rig.loops_flower import InProcessGrid
from fedclust.app.flower_app import client_app, coordinate_study
from fedclust.app.run_folder import Run
from fedclust.core.errors import QuorumLost, StudyError
from fedclust.engines.flower_link import use_grid


def configured(fed, out):
    """The run configuration of a study whose sites have their files in folders."""
    fed.own.write_text(fed.own.read_text().partition("[engine]")[0])
    for name in NAMES:
        shutil.copy(fed.folder / "coordinator" / "study.toml", fed.folder / name)
    study = fed.folder / "coordinator" / "study.toml"
    return {"study": str(study), "own": str(fed.own), "out": str(out)}


@pytest.fixture
def config(tmp_path):
    return configured(ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1"), tmp_path / "run")


def driven(config, folder, names=NAMES, **more):
    with use_grid(InProcessGrid(client_app(), [str(folder / "f" / name / "site.toml") for name in names])):
        coordinate_study({**config, **more})


def test_a_run_that_is_finished_is_said_to_be_and_left_as_it_is(config, tmp_path, capsys):
    driven(config, tmp_path)
    run = Run.find(tmp_path / "run")
    assert run.is_finished
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    driven(config, tmp_path)
    assert f"{run.folder} is finished" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before


def test_patience_counts_for_a_run_that_is_resumed_as_for_one_that_begins(config, tmp_path):
    for patience in (0.1, 2.5, 0.1):
        began = time.monotonic()
        with pytest.raises(QuorumLost):
            driven(config, tmp_path, names=(), timeout=0.2, patience=patience)
        assert (time.monotonic() - began > 2.5) == (patience == 2.5)
    driven(config, tmp_path)
    assert Run.find(tmp_path / "run").is_finished


def test_patience_of_the_coordinators_file_counts_where_the_run_configuration_says_none(config, tmp_path):
    with (tmp_path / "f" / "coordinator" / "own.toml").open("a") as own:
        own.write("[engine]\npatience = 0.1\n")
    with pytest.raises(QuorumLost):
        driven(config, tmp_path, names=(), timeout=0.2)


def test_keys_that_the_coordinators_file_lacks_leave_no_run_folder(config, tmp_path):
    own = tmp_path / "f" / "coordinator" / "own.toml"
    own.write_text(own.read_text().partition("[roster]")[0])
    with pytest.raises(StudyError, match="lacks site 'north'"):
        driven(config, tmp_path)
    assert not (tmp_path / "run").exists()


def test_one_more_round_goes_on_from_the_run_before_and_tells_each_row_once(tmp_path):
    config = configured(made(tmp_path / "f"), tmp_path / "r")
    driven(config, tmp_path)
    put(tmp_path / "f", 1)
    with pytest.raises(QuorumLost):  # nobody is there; the folder that it leaves is gone on with
        driven(config, tmp_path, names=(), after=config["out"], out=str(tmp_path / "r-2"), timeout=0.2, patience=0.1)
    driven(config, tmp_path, after=config["out"], out=str(tmp_path / "r-2"))
    assert alike(fc.load(tmp_path / "r-2" / "model.json"), expected(2))
    with pytest.raises(StudyError, match="does not update"):
        driven(config, tmp_path, after=str(tmp_path / "r-2"), out=str(tmp_path / "r-2"))
    with pytest.raises(StudyError, match="has already been updated"):
        driven(config, tmp_path, after=config["out"], out=str(tmp_path / "r-3"))


def test_a_round_after_a_run_of_another_study_or_nowhere_is_refused(config, tmp_path):
    driven(config, tmp_path)
    study = tmp_path / "other.toml"
    study.write_text((tmp_path / "f" / "coordinator" / "study.toml").read_text() + "# otherwise\n")
    with pytest.raises(StudyError, match="contains a run of a different study text"):
        driven(config, tmp_path, study=str(study), after=config["out"], out=str(tmp_path / "r-2"))
    with pytest.raises(StudyError, match="must set 'after' to an absolute path"):
        driven(config, tmp_path, after="run", out=str(tmp_path / "r-2"))
    assert not (tmp_path / "r-2").exists()
