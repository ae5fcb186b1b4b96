"""A run computes experiments and writes the page, the results, the times in a separate file, and the figures."""

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
    """The assembled findings of each experiment, and the time it took.

    With `kept_only` nothing is computed: an experiment is shown in full if all its parts are stored, otherwise quick or
    left out. Full results on the page in the folder `onto`, if versions and rows are unchanged, replace those that are
    not requested, not stored, or quick.
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
            except Exception as failure:  # noqa: BLE001 after any error the other experiments still get a page
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
            print(f"{name} (full), {time['seconds']:.0f} CPU s, kept from the existing page", file=told, flush=True)
    everything = [name for name in catalogue.everything() if name in documents]
    times = {name: times[name] for name in everything}
    if failed:
        times["failed"] = failed
    wanted = catalogue.everything() if onto else [entry.name for entry in entries]
    return assembled([documents[name] for name in everything], wanted), times


def _shown(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """The findings and times of the full results on a page that are still valid."""
    try:
        whole, times = (json.loads((folder / name).read_text("utf-8")) for name in ("results.json", "times.json"))
    except (FileNotFoundError, ValueError):
        raise StudyError(f"there is no page in {folder} to update; run without --renew") from None
    costly = {own.name for own in catalogue.named("all") if not own.free}  # the others are read again
    return {
        entry["name"]: (taken_apart(entry), times[entry["name"]])
        for entry in whole["experiments"]
        if entry["name"] in costly and entry["size"] == "full" and _unchanged(entry, times.get(entry["name"], {}))
    }


def _unchanged(entry: dict[str, Any], time: dict[str, Any]) -> bool:
    """Whether everything that an experiment depends on is unchanged, including data sets that were missing."""
    before = time.get("depends on", {})
    absent = {f"data/{name}" for name in entry["absent"]}
    if time.get("printed") != printed(entry["name"].partition("-")[0]) or not absent <= set(before):
        return False
    return all(current(name) == own for name, own in before.items())


def written(whole: dict[str, Any], times: dict[str, Any], folder: Path) -> Path:
    """Write the page, numbers, times and figures to a folder; return the path of the page."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    (folder / "times.json").write_text(json.dumps(times, indent=1) + "\n", "utf-8")
    for old in figures.glob("paper*-*.svg"):
        old.unlink()  # from an earlier page
    for entry in whole["experiments"]:
        for own in entry["figures"]:
            name = f"{entry['name']}-{own['name']}"
            markup = drawing.drawn(own, name)
            if "<svg" in markup:
                (figures / f"{name}.svg").write_text(drawing.alone(markup), "utf-8")
    (folder / "index.html").write_text(page(whole, times), "utf-8")
    return folder / "index.html"
