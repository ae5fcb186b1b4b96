"""From the command to the kernel the way is short; a tool of the repository counts it."""

import subprocess
import sys
from pathlib import Path

from fedclust.cli import demo

TOOL = Path(__file__).parents[2] / "tools" / "call_depth.py"
MOST_FRAMES = 16


def test_the_way_from_the_command_to_the_kernel_is_short(tmp_path):
    study = (
        demo.DEMO_STUDY.format(folder=tmp_path)
        .replace('k = "auto"', "k = 2")
        .replace("seed = 0", "seed = 0\nmax_iter = 2")
    )
    (tmp_path / "study.toml").write_text(study)
    (tmp_path / "data").mkdir()
    for company in demo.COMPANIES:
        (tmp_path / "data" / f"{company}.csv").write_text("spend,visits\n1,2\n3,5\n8,1\n")
    command = [sys.executable, TOOL, tmp_path / "study.toml", "--most", str(MOST_FRAMES)]
    counted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stdout + counted.stderr
    assert "frames in" in counted.stdout
