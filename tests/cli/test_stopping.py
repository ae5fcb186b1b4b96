"""Real processes and real signals: what is left is a run that goes on to the same bits."""

import json
import os
import pty
import random
import re
import signal
import time

import pytest

import fedclust as fc


@pytest.fixture
def long(user):
    user.study(("k = 3", 'k = 3\ntol = "none"\nmax_iter = 60'))
    assert user("run", "study.toml", "--out", "whole", "--quiet")[0] == 0
    return user


def until(process, journal, size):
    """Wait until a run has written so much."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        if journal.exists() and journal.stat().st_size >= size:
            return
        time.sleep(0.005)
    raise AssertionError(f"the run ended or hung before its journal had {size} bytes: {process.poll()}")


def fitted(folder):
    return json.loads((folder / "model.json").read_text())["fitted"]


def test_ctrl_c_leaves_a_run_that_can_be_resumed(long):
    process = long.slowly("run", "study.toml")
    until(process, long.folder / "runs/heart/journal", 30_000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    stopped = re.search(
        r"^fedclust: stopped after round (\d+); continue with: fedclust resume runs/heart$", err, re.MULTILINE
    )
    assert stopped
    assert 1 < int(stopped[1]) < 60
    assert "Traceback" not in err
    code, _, err = long("run", "study.toml")
    assert code == 2
    assert "already holds a stopped run; continue it with 'fedclust resume runs/heart'" in err
    assert long("resume", "runs/heart", "--quiet") == (0, "", "")
    assert fitted(long.folder / "runs/heart") == fitted(long.folder / "whole")


def test_a_run_that_another_study_would_mend_is_not_to_be_resumed(user):
    third = '[sites.zurich]\nsource = "cleveland.csv"\n'
    user.study(
        ('source = "hungary.csv"\n', f'source = "hungary.csv"\npolicy = "nhs"\n{third}'),
        ("k = 3", 'k = 3\ninit = "careful"'),
    )
    for words in (("run", "study.toml"), ("resume", "runs/heart")):
        code, out, err = user(*words)
        assert (code, out) == (1, "")
        assert "hungary: its policy does not let points leave the site" in err
        assert "Change the study, or set quorum in it, and start a new run in another folder" in err
        assert "then start again with: fedclust run STUDY --out DIR)" in err
        assert "fedclust resume" not in err
    text = (user.folder / "study.toml").read_text()
    user.write("study.toml", text.replace('init = "careful"', 'init = "box"') + '[privacy]\naggregation = "secure"\n')
    assert user("run", "study.toml", "--out", "runs/again", "--quiet") == (0, "", "")


def test_sigkill_at_random_moments_then_resume_gives_the_same_bits(long):
    whole, journal = long.folder / "whole", long.folder / "runs/heart/journal"
    full = (whole / "journal").stat().st_size
    seed = random.SystemRandom().randrange(10**6)
    for size in sorted(random.Random(seed).randrange(200, int(full * 0.9)) for _ in range(2)):
        process = long.slowly(*(["resume", "runs/heart"] if journal.exists() else ["run", "study.toml"]))
        until(process, journal, max(size, journal.stat().st_size + 1 if journal.exists() else 0))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    code, out, _ = long("resume", "runs/heart", "--json")
    assert code == 0, f"seed {seed}"
    assert fitted(long.folder / "runs/heart") == fitted(whole), f"seed {seed}"
    assert json.loads(out)["centers"] == fc.load(whole / "model.json").cluster_centers_.tolist()


def test_a_terminal_shows_a_bar(user):
    user.study(("k = 3", 'k = 3\ntol = "none"\nmax_iter = 20'))
    ours, theirs = pty.openpty()
    process = user.slowly("run", "study.toml", stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        seen += piece
    os.close(ours)
    out, _ = process.communicate()
    assert process.returncode == 0
    drawings = seen.decode().split("\r")
    assert any(
        re.search(r"round \d+/20 [█░#-]+ shift \d\.\d\de-\d\d  0:0\d, about 0:0\d left", one) for one in drawings
    )
    assert drawings[-1] == "\x1b[K", "the bar is wiped"
    assert "\r" not in out
    assert out.startswith("heart: 3 clusters")
