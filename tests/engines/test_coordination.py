"""A coordinator's process at a run: alone with it, told nothing that it would ignore, and done when the run is."""

import os

import pytest
from federation_by_files import NAMES, ByFiles, begun

from fedclust.app.flower_app import coordinate_study
from fedclust.app.run_folder import EngineChoice, Run
from fedclust.cli.main import main
from fedclust.core.errors import StudyError


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def coordinate(fed, *words):
    own = ["coordinate", fed.folder / "coordinator" / "study.toml", "--own", fed.own, "--out", fed.folder / "run"]
    return main([str(word) for word in (*own, "--quiet", *words)])


def test_whoever_comes_second_to_a_run_touches_nothing(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    run, _ = begun(fed)
    before = {path: path.stat().st_mtime_ns for path in fed.folder.rglob("*")}
    with run.lock():
        assert main(["resume", str(run.folder)]) == 1
    assert "another process is working" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in fed.folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("engine", "setting", "told"),
    [
        ("files", "bind=192.0.2.1", "engine 'files' has no setting 'bind'; its settings are folder, poll"),
        ("nvflare", "pol=2", "engine 'nvflare' has no setting 'pol'; its settings are bind, kit, patience"),
        ("flower", "poll=2", "engine 'flower' has no setting 'poll'; its settings are patience"),
    ],
)
def test_a_setting_that_an_engine_has_not_is_refused_before_anything_is_made(engine, setting, told, tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    assert coordinate(fed, "--engine", engine, "--set", setting) == 2
    assert told in capsys.readouterr().err
    assert not (fed.folder / "run").exists()


def test_a_run_that_another_study_would_mend_is_to_be_coordinated_anew(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2", more='init = "careful"', mode="secure", policy="nhs")
    assert coordinate(fed, "--engine", "files") == 4
    for _ in range(20):
        fed.around()
        if (code := main(["resume", str(fed.folder / "run"), "--quiet"])) != 4:
            break
    told = capsys.readouterr().err
    assert code == 1
    assert "its policy does not let points leave the site" in told
    assert "then start again with: fedclust coordinate STUDY --engine files --out DIR)" in told
    assert "fedclust resume" not in told


def test_a_setting_in_the_coordinators_file_that_no_engine_has_is_refused(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    fed.own.write_text(fed.own.read_text().replace("poll =", "pol ="))
    assert coordinate(fed, "--engine", "files") == 2
    assert "has an unknown key 'pol'; the keys of engine 'files' are folder, poll" in capsys.readouterr().err
    assert not (fed.folder / "run").exists()


def test_a_setting_in_the_coordinators_file_that_is_of_another_engine_is_refused(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    fed.own.write_text(fed.own.read_text().replace("poll = 0.01", "patience = 60"))
    assert coordinate(fed, "--engine", "files") == 2
    assert "has an unknown key 'patience'; the keys of engine 'files' are folder, poll" in capsys.readouterr().err
    assert not (fed.folder / "run").exists()


@pytest.mark.parametrize("said", ["--set poll=abc", "--set poll=-1", "poll = 'abc'", "poll = -1"])
def test_a_setting_of_the_files_that_is_no_time_is_refused_before_anything_is_made(said, tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    if not said.startswith("--"):
        fed.own.write_text(fed.own.read_text().replace("poll = 0.01", said))
    assert coordinate(fed, "--engine", "files", *(said.split() if said.startswith("--") else ())) == 2
    assert "poll of engine 'files' must be a number of seconds above 0" in capsys.readouterr().err
    assert not (fed.folder / "run").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [('identity = "own.key"', "has no identity"), ("north =", "lacks site 'north'")],
)
def test_a_key_that_the_coordinators_file_lacks_is_named_before_anything_is_made(line, told, tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    kept = [text for text in fed.own.read_text().splitlines() if not text.startswith(line)]
    fed.own.write_text("\n".join(kept))
    assert coordinate(fed, "--engine", "files") == 2
    assert told in capsys.readouterr().err
    assert not (fed.folder / "run").exists()


def test_messages_without_a_coordinators_file_are_refused_before_anything_is_made(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2")
    words = ["coordinate", fed.folder / "coordinator" / "study.toml", "--engine", "files", "--out", tmp_path / "run"]
    assert main([str(word) for word in words]) == 2
    assert "give the path of the coordinator's file with --own" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [("--wait",), ("--timeout", "3"), ("--without", "north"), ("--log-json", "l"), ("--metrics", "0"), ("--own", "o")],
)
def test_what_only_sites_elsewhere_can_be_told_is_refused_for_a_run_in_one_process(words, tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")
    (tmp_path / "here.toml").write_text(fed.pooled_study())
    assert main(["run", str(tmp_path / "here.toml"), "--out", str(tmp_path / "here"), "--quiet"]) == 0
    (tmp_path / "here" / "metrics.json").unlink()
    assert main(["resume", str(tmp_path / "here"), *words]) == 2
    assert f"{words[0]} is for remote sites" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "said"), [("timeout", -1), ("patience", "soon"), ("timeout", True)])
def test_a_time_of_a_flower_run_that_is_none_is_refused_before_anything_is_made(key, said, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2")
    config = {"study": fed.folder / "coordinator" / "study.toml", "own": fed.own, "out": tmp_path / "run"}
    with pytest.raises(StudyError, match=f"'{key}' of the run configuration is '{said}'"):
        coordinate_study({**config, key: said})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    ("engine", "more", "told"),
    [
        ("flower", "# other\n", "contains a run of a different study text; use the study.toml"),
        ("files", "", "contains a run of engine 'files', not of engine 'flower'; use another folder"),
        (None, "", "contains a run without an engine, not of engine 'flower'; use another folder"),
    ],
)
def test_a_folder_that_holds_another_run_is_not_gone_on_with_over_flower(engine, more, told, finished, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2")
    study = fed.folder / "coordinator" / "study.toml"
    served = None if engine is None else EngineChoice(engine, fed.own)
    run = Run.create(tmp_path / "run", study.read_text(), origin=tmp_path, engine_choice=served)
    if finished:
        run.write_json("metrics.json", {})
    study.write_text(study.read_text() + more)
    with pytest.raises(StudyError, match=told):
        coordinate_study({"study": study, "own": fed.own, "out": run.folder})


def test_a_coordinators_file_that_was_moved_is_named_to_go_on(tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")
    run, _ = begun(fed)
    words = ["resume", str(run.folder), "--quiet"]
    assert main(words) == 4
    moved = fed.own.rename(fed.own.with_name("moved.toml"))
    assert main(words) == 2
    assert f"there is no coordinator's file at {fed.own}; give its path with --own" in capsys.readouterr().err
    assert main([*words, "--own", str(moved)]) == 4


@pytest.mark.parametrize("mode", ["secure", pytest.param("blind", marks=pytest.mark.engines)])
def test_a_run_that_is_over_is_over_however_often_it_is_resumed(mode, tmp_path, capsys):
    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1", mode=mode, policy="standard")
    run, _ = begun(fed)
    words = ["resume", str(run.folder)]
    for _ in range(400):
        if (code := main([*words, "--quiet"])) != 4:
            break
        fed.around()
    assert code == 0
    for letter in (fed.mail / "from").rglob("*.message"):  # someone tidied up
        letter.unlink()
    for more in ([], ["--wait"]):
        capsys.readouterr()
        assert main([*words, *more]) == 0
        said = capsys.readouterr()
        assert (
            "2 clusters" if mode == "secure" else "the run is finished; the result is at the leading site"
        ) in said.out
        assert said.err == ""
    fed.carry(back=False)
    assert all(fed.answer(name).all_ended for name in NAMES)
