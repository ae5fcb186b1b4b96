"""`fedclust export`: writes a finished run's centres, cluster sizes and rounds as CSV or JSON for other tools."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust.app.analysis import ModelFacts


def add_export_verb(verbs: Any) -> None:
    export = verbs.add_parser(
        "export",
        help="write centres, cluster sizes and the values of each round for other tools",
        description=act_export.__doc__,
    )
    export.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    export.add_argument("--to", choices=("csv", "json"), required=True, help="the format to write")
    export.add_argument("--out", type=Path, metavar="DIR", help="the folder to write to (default: RUN/export)")
    export.set_defaults(act=act_export)


def act_export(chosen: argparse.Namespace) -> int:
    """Write centers.csv and rounds.csv, or both together as result.json, in original units and with column names."""
    from fedclust import load
    from fedclust.app.analysis import read_model_facts
    from fedclust.app.run_folder import Run
    from fedclust.cli import result_summary

    run = Run.find(chosen.run)
    metrics = run.metrics
    model = read_model_facts(load(run.model_path))
    folder = chosen.out or run.folder / "export"
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.to == "json":
        from fedclust.core.atomic_files import write_file

        path = folder / "result.json"
        text = json.dumps(result_summary.result_document(run, model, metrics), indent=1, allow_nan=False)
        write_file(path, f"{text}\n", one_writer=False)
        print(path)
        return 0
    for name, columns in _export_tables(model, metrics).items():
        _write_table(folder / name, columns)
        print(folder / name)
    return 0


def _export_tables(model: ModelFacts, metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    import numpy as np

    columns = metrics["columns"]
    centers = {
        unused_name("cluster", columns): np.arange(metrics["k"]),
    }
    if model.cluster_sizes is not None:
        called = "weight" if model.fuzziness > 1 else "size"
        centers[unused_name(called, columns)] = np.asarray(model.cluster_sizes, np.float64)
    if model.cluster_centers is not None:
        centers |= dict(zip(columns, np.ascontiguousarray(model.cluster_centers.T), strict=True))
    shifts, objectives = metrics["shifts"], metrics["objectives"]
    count = max(len(shifts), len(objectives))  # one of them is empty if the model could not tell it
    rounds = {
        "round": np.arange(1, count + 1),
        "shift": np.array([*shifts, *[None] * (count - len(shifts))], np.float64),
        "objective": np.array([*objectives, *[None] * (count - len(objectives))], np.float64),
    }
    return {"centers.csv": centers, "rounds.csv": rounds}


def unused_name(name: str, taken: Sequence[str]) -> str:
    """A column name that the data's own columns do not use."""
    return unused_name(f"{name}_", taken) if name in taken else name


def _write_table(path: Path, columns: dict[str, Any]) -> None:
    from fedclust.app.output_files import TableFile

    with TableFile(path) as table:
        table.write(columns)
