"""What a coordinator over FLARE is set to is looked at before a run folder is made, wherever it is said."""

import shutil

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import Federation3

from fedclust.app.execute import begin_run
from fedclust.app.run_folder import EngineChoice
from fedclust.app.study import read_study
from fedclust.cli.main import main
from fedclust.core.errors import StudyError
from fedclust.engines.engine_settings import build_attendance
from fedclust.engines.nvflare import nvflare_link
from fedclust.engines.registry import RunSpec

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Federation3.made(tmp_path_factory.mktemp("settings")).folder


@pytest.fixture
def folder(made, tmp_path):
    """A study and its kits, to be changed."""
    return shutil.copytree(made, tmp_path / "own")


def own_of(folder):
    return folder / "kits" / "coordinator" / "coordinator.toml"


def coordinate(folder, *words):
    own = ["coordinate", folder / "study.toml", "--engine", "nvflare", "--own", own_of(folder), "--out", folder / "run"]
    return main([str(word) for word in (*own, *words)])


def say(folder, line):
    """Add a line to [engine] of the coordinator's file."""
    own_of(folder).write_text(own_of(folder).read_text().replace("[engine]\n", f"[engine]\n{line}\n"))


ALL_ADDRESSES = ("0.0.0.0", "0", "0.0", "0x0", "00.0.0.0", "")
NOT_OF_THIS_MACHINE = ("::", "192.0.2.7", "no.such.host.invalid", "a..b")


@pytest.mark.parametrize("where", ["--set", "file"])
@pytest.mark.parametrize("address", [*ALL_ADDRESSES, *NOT_OF_THIS_MACHINE])
def test_an_address_that_must_not_or_cannot_be_bound_to_is_refused(address, where, folder, capsys):
    if where == "file":
        say(folder, f'bind = "{address}"')
    assert coordinate(folder, *(["--set", f"bind={address}"] if where == "--set" else [])) == 2
    told = capsys.readouterr().err
    if address in ALL_ADDRESSES:
        assert f"bind is '{address}', which means all addresses" in told
    else:
        assert f"cannot listen on '{address}', the value of bind" in told
    assert not (folder / "run").exists()


def test_a_name_of_loopback_needs_no_door_of_its_own(folder):
    for said in ("127.0.0.1", "localhost", "127.1", "0x7f000001"):
        assert nvflare_link.resolve_bind_address({"bind": said}) is None
    assert nvflare_link.resolve_bind_address({}) is None
    assert nvflare_link.resolve_bind_address({"bind": "127.0.0.2"}) == "127.0.0.2"


@pytest.mark.parametrize("where", ["--set", "file"])
def test_a_patience_that_is_no_time_is_refused(where, folder, capsys):
    if where == "file":
        say(folder, 'patience = "soon"')
    assert coordinate(folder, *(["--set", "patience=soon"] if where == "--set" else [])) == 2
    assert "patience is 'soon'; set it to a number of seconds above 0" in capsys.readouterr().err
    assert not (folder / "run").exists()


def test_a_study_that_the_kit_was_not_made_for_leaves_no_run_folder(folder, capsys):
    (folder / "study.toml").write_text((folder / "study.toml").read_text() + "# one more line\n")
    assert coordinate(folder) == 2
    assert "was made for a different text of the study" in capsys.readouterr().err
    assert not (folder / "run").exists()


def spec(folder, **settings):
    study = read_study(folder / "study.toml", served=True)
    names = tuple(site.name for site in study.sites)
    return RunSpec("r", study.text, names, folder / "run", coordinator_file=own_of(folder), settings=settings)


def test_patience_is_what_the_command_says_else_what_the_coordinators_file_says(folder):
    assert build_attendance("nvflare", spec(folder)).patience == 900
    say(folder, "patience = 77")
    assert build_attendance("nvflare", spec(folder)).patience == 77
    assert build_attendance("nvflare", spec(folder, patience="5")).patience == 5


def test_a_kit_named_from_where_one_stands_is_found_from_anywhere(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    study = read_study(folder / "study.toml", served=True)
    served = EngineChoice("nvflare", settings={"kit": "kits/coordinator", "patience": "5"})
    run = begin_run(study, folder / "run", engine_choice=served)
    assert run.engine_choice.settings == {"kit": str((folder / "kits" / "coordinator").resolve()), "patience": "5"}


def test_a_key_of_another_engine_in_the_coordinators_file_is_refused(folder, capsys):
    say(folder, "poll = 1.0")
    assert coordinate(folder) == 2
    assert "has an unknown key 'poll'; the keys of engine 'nvflare' are bind, kit, patience" in capsys.readouterr().err
    with pytest.raises(StudyError, match="has an unknown key 'poll'"):
        nvflare_link.check_spec(spec(folder))
