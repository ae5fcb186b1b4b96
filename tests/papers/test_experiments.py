"""Scripts that print documented figures run, on a small drawn set under the name of a real one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from fresh_process import start_module

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "src")))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    X = rng.normal(size=(600, 4)) + 9 * y[:, None]
    np.savez(folder / "s_set1.npz", X=X, y=y, classes=["a", "b", "c"])
    return folder


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "unlearning --sets s_set1 --seeds 1",
            [r"\| s_set1 \| FuzzyCMeans \| a row \| .* \| 1 of 1 \| 1.0000 \|"],
        ),
        (
            "fcac table --sets s_set1 --seeds 1 --parts parts",
            [
                r"SummaryClustering +mean ari 1.0000",
                r"k-FED +mean ari 1.0000",
                r"pooled k-means, unscaled mean ari 1.0000",
            ],
        ),
        ("fcac_rounds --seeds 1 --out rounds", ["at least 99% of round 1 known, no node gone: yes"]),
        ("local_noise curve --sets s_set1 --seeds 1 --out noise", [r"none +epsilon +0 +SummaryClustering 1.000"]),
    ],
)
def test_a_script_prints_its_figures(command: str, lines: list[str], data: Path, tmp_path: Path):
    script, *options = command.split()
    environment = {**os.environ, "FEDCLUST_DATA": str(data), "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}
    done = start_module(f"papers.experiments.{script}", *options, folder=tmp_path, environment=environment)
    printed, error = done.communicate(timeout=300)
    assert done.returncode == 0, error
    assert "did not run" not in printed
    for line in lines:
        assert re.search(line, printed), printed
