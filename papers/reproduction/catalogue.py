"""The catalogue lists the function, the cost and the order of each reproduced table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedclust.core.errors import StudyError
from papers.reproduction.published import Table, papers, table
from papers.reproduction.store import versions_in_use
from papers.reproduction.workbench import Bench, Experiment, Found

RECORDED = "none (recorded runs)"


@dataclass(frozen=True)
class Entry:
    """An experiment: its table in the paper, and about how long it takes in full and quick, on one core."""

    name: str
    run: Experiment
    full: str
    quick: str

    @property
    def printed(self) -> Table:
        return table(self.name)

    @property
    def free(self) -> bool:
        """Whether the experiment needs no runs."""
        return self.full == RECORDED


EXPERIMENTS: dict[str, Entry] = {}


def experiment(name: str, *, full: str, quick: str, methods: Sequence[str] = ()) -> Callable[[Experiment], Experiment]:
    """Register a function under the name of what it reproduces; `methods` are those it uses outside its parts."""
    versions = versions_in_use(name.partition("-")[0], methods)

    def entered(run: Experiment) -> Experiment:
        def named_run(bench: Bench) -> Found:
            bench.name = name
            bench.dependencies |= versions
            return run(bench)

        EXPERIMENTS[name] = Entry(name, named_run, full, quick)
        return run

    return entered


def named(asked: str) -> list[Entry]:
    """The experiments that a name selects: a single one, those of a paper ("paper2"), or "all"."""
    everything()
    if asked == "all":
        return list(EXPERIMENTS.values())
    if asked in papers():
        return [entry for name, entry in EXPERIMENTS.items() if name.startswith(f"{asked}-")]
    if asked not in EXPERIMENTS:
        raise StudyError(f"there is no experiment '{asked}'; 'python -m papers.reproduction list' lists all")
    return [EXPERIMENTS[asked]]


def everything() -> Sequence[str]:
    """Register all experiments, in the order of the papers."""
    from papers.reproduction import paper0, paper1, paper2, paper2_g2, paper3, paper4  # noqa: F401

    return list(EXPERIMENTS)
