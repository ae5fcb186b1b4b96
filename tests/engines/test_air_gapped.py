"""The walk-through without a network, carried out as the page has it: its commands, in its order, until it is done."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from federation_by_files import NAMES, rows

from fedclust import load
from fedclust.cli.main import main
from fedclust.site.site_file import read_public_key

PAGE = Path(__file__).parents[2] / "docs" / "air-gapped.md"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def carried_out(block):
    """Each line of a block; the exit code of the last."""
    code = None
    for line in block.splitlines():
        program, *words = line.split()
        if program == "cp":
            for path in Path(words[0]).parent.glob("*"):
                shutil.copy(path, words[1])
        else:
            assert program == "fedclust"
            code = main(words)
            assert code in (0, 4), line
    return code


def settle_in():
    """What the page tells people to write after they told each other their public keys."""
    keys = {name: read_public_key(Path(name) / "own.key.pub").hex() for name in ("coordinator", *NAMES)}
    (profile,) = re.findall(r'^profile = "(\w+)"$', (PAGE.parent / "deployment.md").read_text(), flags=re.MULTILINE)
    roster = "[roster]\n" + "".join(f'{name} = "{keys[name]}"\n' for name in NAMES)
    Path("coordinator/own.toml").write_text(f'identity = "own.key"\n{roster}[engine]\nfolder = "messages"\n')
    for number, name in enumerate(NAMES):
        np.savetxt(f"{name}/rows.csv", rows(number), delimiter=",", header="age,bp", comments="")
        Path(f"{name}/site.toml").write_text(
            f'name = "{name}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
            f'coordinator = "{keys["coordinator"]}"\n[policy]\nprofile = "{profile}"\n{roster}'
        )


def test_the_walk_through_leads_to_clusters(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for name in ("coordinator", *NAMES):
        for box in ("inbox", "outbox"):
            (tmp_path / name / box).mkdir(parents=True)
    making_keys, planning, beginning, trip, looking = blocks("sh")
    carried_out(making_keys)
    settle_in()
    (study,) = re.findall(r"^```\n(name = .*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    Path("coordinator/study.toml").write_text(study)
    assert carried_out(planning) == 0
    assert "ALLOWED" in capsys.readouterr().out
    assert carried_out(beginning) == 4
    told = capsys.readouterr().out
    assert "Waiting for north, south, west" in told
    assert "fedclust resume runs/heart" in told
    for _ in range(60):
        code = carried_out(trip)
        if code == 0:
            break
    assert "heart: 3 clusters by fuzzy-c-means in 2 rounds" in capsys.readouterr().out
    assert carried_out(looking) == 0
    assert "runs/heart: finished" in capsys.readouterr().out
    assert load("runs/heart/model.json").cluster_centers_.shape == (3, 2)


@pytest.mark.parametrize("name", ["deployment.md", "air-gapped.md"])
def test_every_option_of_coordinating_is_on_the_pages(name):
    from fedclust.cli.main import make_parser

    text = (PAGE.parent / name).read_text(encoding="utf-8") + (PAGE.parent / "deployment.md").read_text()
    verbs = make_parser()._subparsers._group_actions[0].choices
    for verb in ("coordinate", "resume"):
        options = {o for action in verbs[verb]._actions for o in action.option_strings if o.startswith("--")}
        assert [o for o in options - {"--help", "--json", "--quiet", "--out"} if o not in text] == []
