"""`python -m papers.reproduction NAME` computes the papers' tables and figures again."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from fedclust.core.errors import FedclustError, RunFailed, StudyError


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    again = argparse.ArgumentParser(prog="python -m papers.reproduction", description=act_reproduce.__doc__)
    again.add_argument("name", metavar="NAME", help="'list', 'all', a paper (paper2) or an experiment (paper2-table1)")
    again.add_argument(
        "--quick", action="store_true", help="compute in minutes, with fewer repeats and sizes; the page notes this"
    )
    again.add_argument(
        "--cached", action="store_true", help="compute nothing; show stored results (full results if available)"
    )
    again.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    again.add_argument(
        "--out", type=Path, default=Path("build") / "reproduction", help="folder for the page, numbers and figures"
    )
    again.add_argument("--cache", type=Path, help="folder of stored parts (default: in the user's cache)")
    again.add_argument(
        "--renew", action="store_true", help="keep the full results in --out whose versions and data are unchanged"
    )
    again.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return again


def main(arguments: list[str] | None = None) -> int:
    """Run the command; an error is one sentence and an exit code."""
    try:
        return act_reproduce(parser().parse_args(arguments))
    except FedclustError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, StudyError) else 1


def act_reproduce(chosen: argparse.Namespace) -> int:
    """Compute tables and figures of the five papers and compare them with the printed ones.

    Parts are stored: an interrupted run resumes where it stopped, and a second run gives the same numbers.
    """
    from papers.reproduction import assembling, catalogue, running
    from papers.reproduction.store import Store

    if chosen.name == "list":
        entries = catalogue.named("all")
        listed = [
            {"name": e.name, "place": e.printed.place, "title": e.printed.title, "full": e.full, "quick": e.quick}
            for e in entries
        ]
        print(json.dumps(listed, indent=1) if chosen.json else _told(listed))
        return 0
    entries = catalogue.named(chosen.name)
    store = Store(chosen.cache or _cache())
    onto = chosen.out if chosen.renew else None
    whole, times = running.carried_out(
        entries, store, quick=chosen.quick, jobs=chosen.jobs, kept_only=chosen.cached, onto=onto, told=sys.stderr
    )
    page = running.written(whole, times, chosen.out)
    if chosen.json:
        print(json.dumps(whole, indent=1))
    else:
        print(assembling.summary(whole))
        print(f"page, numbers and figures: {page}")
    if failed := times.get("failed"):
        raise RunFailed(f"{len(failed)} experiments failed: {'; '.join(failed)}")
    return 0


def _told(listed: list[dict[str, str]]) -> str:
    wide = max(len(own["name"]) for own in listed)
    lines = [
        f"{own['name']:{wide}}  {own['place']}: {own['title']}; {own['full']}, quick {own['quick']}" for own in listed
    ]
    return "\n".join(lines)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedclust" / "reproduce"


if __name__ == "__main__":
    sys.exit(main())
