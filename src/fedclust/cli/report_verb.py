"""`fedclust report`: a finished run as a page to look at, print and pass on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(verbs: Any) -> None:
    report = verbs.add_parser("report", help="a finished run as one HTML file", description=act_report.__doc__)
    report.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    report.add_argument("--out", type=Path, metavar="FILE", help="the file to write (default: RUN/report.html)")
    report.set_defaults(act=act_report)


def act_report(chosen: argparse.Namespace) -> int:
    """Write a page with figures that needs no network; the same run gives the same page, byte for byte."""
    print(write_report(chosen.run, chosen.out))
    return 0


def write_report(run: Path, out: Path | None = None) -> Path:
    """The page of a run, written whole."""
    from fedclust.core.atomic_files import write_file
    from fedclust.core.errors import StudyError
    from fedclust.report import page, read_run

    html = page(read_run(run))
    path = out or run / "report.html"
    if path.is_dir():
        raise StudyError(f"{path} is a folder; name the file to write, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise StudyError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    write_file(path, html, one_writer=False)
    return path
