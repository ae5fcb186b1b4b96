"""A run of experiments from start to page: results, times apart from them, figures as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from fedclust.core.errors import FedclustError, StudyError
from papers.reproduction import catalogue
from papers.reproduction import figures as drawing
from papers.reproduction.assembling import assembled, taken_apart
from papers.reproduction.catalogue import Entry
from papers.reproduction.published import printed
from papers.reproduction.reproduction_page import page
from papers.reproduction.store import NotKept, Store, current
from papers.reproduction.workbench import Bench


def carried_out(
    entries: Sequence[Entry],
    store: Store,
    *,
    quick: bool,
    jobs: int = 1,
    kept_only: bool = False,
    onto: Path | None = None,
    told: TextIO,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was found by each experiment, assembled, and how long it took.

    With `kept_only` nothing is computed: an experiment is shown in full if all its parts are kept, else quick, else
    left out. What the page in the folder `onto` shows in full, if versions and rows are the same, stands in for
    what is not asked for, not kept, or quick.
    """
    shown = _shown(onto) if onto else {}
    if onto:
        asked = {entry.name for entry in entries}
        entries = [*entries, *(own for own in catalogue.named("all") if own.free and own.name not in asked)]
    documents, times, failed = dict[str, Any](), dict[str, Any](), list[str]()
    for number, entry in enumerate(entries, 1):
        sizes = [False, True] if kept_only else [quick]
        for size in sizes if entry.name not in shown else [own for own in sizes if not own]:
            bench = Bench(store, quick=size, jobs=jobs, compute=not kept_only, told=told)
            try:
                documents[entry.name] = entry.run(bench).document()
            except NotKept:
                continue
            except Exception as failure:  # noqa: BLE001 whatever it is, the others are still worth a page
                told_as = str(failure) if isinstance(failure, FedclustError) else repr(failure)
                failed.append(f"{entry.name}: {told_as}")
                break
            times[entry.name] = {
                "size": bench.size,
                "seconds": round(bench.seconds, 1),
                "machines": sorted(bench.machines),
                "depends on": dict(sorted(bench.dependencies.items())),
                "printed": printed(entry.name.partition("-")[0]),
            }
            print(
                f"{number} of {len(entries)}: {entry.name} ({bench.size}), {bench.seconds:.0f} CPU s, "
                f"{bench.fresh} parts computed now",
                file=told,
                flush=True,
            )
            break
    for name, (document, time) in shown.items():
        if name not in documents:
            documents[name], times[name] = document, time
            print(f"{name} (full), {time['seconds']:.0f} CPU s, as it was shown", file=told, flush=True)
    everything = [name for name in catalogue.everything() if name in documents]
    times = {name: times[name] for name in everything}
    if failed:
        times["failed"] = failed
    wanted = catalogue.everything() if onto else [entry.name for entry in entries]
    return assembled([documents[name] for name in everything], wanted), times


def _shown(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What a page shows in full and would show again: the findings and the times of its experiments."""
    try:
        whole, times = (json.loads((folder / name).read_text("utf-8")) for name in ("results.json", "times.json"))
    except (FileNotFoundError, ValueError):
        raise StudyError(f"there is no page in {folder} to renew; leave out --renew") from None
    costly = {own.name for own in catalogue.named("all") if not own.free}  # the others are read anew
    return {
        entry["name"]: (taken_apart(entry), times[entry["name"]])
        for entry in whole["experiments"]
        if entry["name"] in costly and entry["size"] == "full" and _unchanged(entry, times.get(entry["name"], {}))
    }


def _unchanged(entry: dict[str, Any], time: dict[str, Any]) -> bool:
    """Whether all that an experiment depends on is as it was, what was not at hand included."""
    before = time.get("depends on", {})
    absent = {f"data/{name}" for name in entry["absent"]}
    if time.get("printed") != printed(entry["name"].partition("-")[0]) or not absent <= set(before):
        return False
    return all(current(name) == own for name, own in before.items())


def written(whole: dict[str, Any], times: dict[str, Any], folder: Path) -> Path:
    """Page, numbers, times and figures in a folder; returns the page."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    (folder / "times.json").write_text(json.dumps(times, indent=1) + "\n", "utf-8")
    for old in figures.glob("paper*-*.svg"):
        old.unlink()  # of an earlier page
    for entry in whole["experiments"]:
        for own in entry["figures"]:
            name = f"{entry['name']}-{own['name']}"
            markup = drawing.drawn(own, name)
            if "<svg" in markup:
                (figures / f"{name}.svg").write_text(drawing.alone(markup), "utf-8")
    (folder / "index.html").write_text(page(whole, times), "utf-8")
    return folder / "index.html"
