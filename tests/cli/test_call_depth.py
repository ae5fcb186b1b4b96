"""From the command to the kernel the way is short; a tool of the repository counts it."""

import os
from pathlib import Path

import pytest

from fedclust.cli import demo
from fresh_process import start_module

ROOT = Path(__file__).parents[2]
MOST_FRAMES = 16


@pytest.mark.parametrize("k", ["2", '"auto"'])
def test_the_way_from_the_command_to_the_kernel_is_short(k, tmp_path):
    study = (
        demo.DEMO_STUDY.format(folder=tmp_path)
        .replace('k = "auto"', f"k = {k}")
        .replace("seed = 0", "seed = 0\nmax_iter = 2")
    )
    (tmp_path / "study.toml").write_text(study)
    (tmp_path / "data").mkdir()
    for company in demo.COMPANIES:
        (tmp_path / "data" / f"{company}.csv").write_text("spend,visits\n1,2\n3,5\n8,1\n")
    words = [str(tmp_path / "study.toml"), "--most", str(MOST_FRAMES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    counted = start_module("tools.call_depth", *words, folder=tmp_path, environment=environment)
    printed, error = counted.communicate()
    assert counted.returncode == 0, printed + error
    assert "frames in" in printed
