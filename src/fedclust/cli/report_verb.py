"""`fedclust report`: writes a finished run as one HTML page to read, print and share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_report_verb(verbs: Any) -> None:
    report = verbs.add_parser("report", help="write a finished run as one HTML file", description=act_report.__doc__)
    report.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    report.add_argument("--out", type=Path, metavar="FILE", help="the file to write (default: RUN/report.html)")
    report.set_defaults(act=act_report)


def act_report(chosen: argparse.Namespace) -> int:
    """Write an HTML page with figures. It needs no network. The same run gives the same page, byte for byte."""
    print(write_report(chosen.run, chosen.out))
    return 0


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the page of a run in one atomic step."""
    from fedclust.core.atomic_files import write_file
    from fedclust.core.errors import StudyError
    from fedclust.report import page, read_run

    html = page(read_run(run))
    path = out or run / "report.html"
    if path.is_dir():
        raise StudyError(f"{path} is a folder; name the file to write, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise StudyError(f"the folder {path.parent} for {path.name} does not exist; create it first")
    write_file(path, html, one_writer=False)
    return path
