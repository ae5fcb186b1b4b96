"""A study coordinated over sites that are elsewhere: begun, gone on with, and seen through, by whatever engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedclust.app.run_folder import Run, Watch, carry_out, working_at
from fedclust.app.serve import schema_at
from fedclust.app.study import Opened, Study
from fedclust.app.study.toml_text import tables
from fedclust.core.errors import QuorumLost, StudyError
from fedclust.engines.attendance import Tell
from fedclust.engines.metrics_endpoint import Exposed
from fedclust.engines.networked_engine import Networked
from fedclust.engines.registry import Posting, check, connect, kept_settings, known
from fedclust.engines.run_status import Log, together
from fedclust.federation.aggregation import Aggregation, Enrolled
from fedclust.federation.federation import Federation
from fedclust.questions.schema import Column, encoded_names
from fedclust.site.site_file import SITES_OWN


@dataclass(frozen=True)
class Manner:
    """How one process works at a run: whether it stays until answers come, for whom it does not wait, who may watch."""

    wait: bool = False
    timeout: float | None = None
    without: frozenset[str] = frozenset()
    log: Path | None = None
    metrics: int | None = None  # a port of the loopback address
    patience: float | None = None  # seconds, instead of what the run was begun with
    own: Path | None = None  # the coordinator's file, where it lies elsewhere than when the run was begun

    def check_idle(self) -> None:
        """Refuse what only sites that are elsewhere can be told, where all are in this process."""
        said = {"--wait": self.wait, "--timeout": self.timeout is not None, "--without": self.without}
        said |= {"--log-json": self.log is not None, "--metrics": self.metrics is not None}
        said |= {"--own": self.own is not None}
        for option in filter(said.get, said):
            raise StudyError(f"{option} is for sites that are elsewhere; those of this run are in this process")


def begin(study: Study, folder: Path, *, engine: str, own: Path | None, settings: dict[str, str] | None = None) -> Run:
    """A new run folder, once nothing speaks against the study; no site has heard of it yet."""
    kept = kept_settings(engine, settings or {})
    for name, site in tables(study.text, Path("the study"))["sites"].items():
        for key in SITES_OWN:
            if key in site:
                raise StudyError(f"[sites.{name}] gives {key}; a site that serves takes that from its own file only")
    study.aggregation.check([site.name for site in study.sites])
    if study.aggregation.blind and not known(engine).leads:
        raise StudyError(f"engine '{engine}' cannot carry a blind run; use 'files', or set aggregation to 'secure'")
    opened(replace(study, aggregation=Aggregation()), Unreached(tuple(site.name for site in study.sites)))
    names = tuple(site.name for site in study.sites)
    check(engine, Posting("", study.text, names, folder, own=own, settings=kept))
    served = {"engine": engine, "own": str(own.resolve()) if own else None, "settings": kept}
    return Run.make(folder, study.text, origin=Path(), served=served)


def go_on(run: Run, manner: Manner, watch: Watch | None = None) -> Any:
    """Carry a run on to its model, or as far as it goes for now."""
    study = run.study()
    _check_patience(run, study, manner)
    # First of all the run is taken: whoever comes second must not touch what the first one works with.
    with working_at(run), telling(run, manner) as tell, connected(run, study, manner, tell) as engine:
        return carry_out(run, opened(study, engine), watch, tell=tell)


def part(run: Run, own: Path | None = None) -> None:
    """Tell the sites of a finished run that it is over, once more: who died last may not have come to that."""
    if known(str((run.served or {}).get("engine"))).days:
        with run.held(), connected(run, run.study(), Manner(own=own), lambda *_, **__: None):
            pass


def _check_patience(run: Run, study: Study, manner: Manner) -> None:
    """A sum that sites may leave is opened in one go: its keys are written down nowhere."""
    needs_all = study.cluster.options.get("quorum", "all") == "all"
    days = known(str((run.served or {}).get("engine"))).days
    if days and not manner.wait and study.aggregation.mode == "secure" and not needs_all:
        raise StudyError(
            "secure aggregation with a quorum below all opens each sum in one go; stay for the answers with --wait"
        )
    if days and not manner.wait and study.align is not None:
        raise StudyError("sites align their rows in one go, of which little is written down; stay for it with --wait")


def opened(study: Study, engine: Any, enrolled: Enrolled | None = None) -> Opened:
    """A study whose sites are reached by an engine; what it says of columns must be enough.

    `enrolled` has the lead's keys, where this process is the lead's.
    """
    fed = Federation(
        engine,
        {site.name: encoded_names(schema_at(study, site.name)) for site in study.sites},
        columns=columns_of(study),
        split=study.split,
        seed=study.seed,
        schema=schema_of(study),
        aggregation=study.aggregation,
        enrolled=enrolled,
        align=study.align,
    )
    estimator = study.estimator(fed.columns)
    estimator.protocol(fed).close()  # checks the parameters; no step is taken
    return Opened(study, fed, estimator)


def schema_of(study: Study) -> dict[str, Column]:
    """All columns of a served study, and what they are."""
    if study.split == "rows":
        return dict(schema_at(study, study.sites[0].name))
    everywhere = {name: column for site in study.sites for name, column in schema_at(study, site.name).items()}
    return dict(study.schema) if set(study.schema) == set(everywhere) else everywhere


def columns_of(study: Study) -> tuple[str, ...]:
    return encoded_names(schema_of(study))


class Unreached:
    """Sites that nobody has called yet: enough to see whether a study can be carried out at all."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties

    def exchange(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}


@contextmanager
def telling(run: Run, manner: Manner) -> Iterator[Tell]:
    """Whoever watches, for as long as the process works at the run."""
    with ExitStack() as stack:
        status = run.watched()
        tells: list[Tell] = [status]
        if manner.log is not None:
            log = Log(manner.log, run.name)
            stack.callback(log.close)
            tells.append(log)
        if manner.metrics is not None:
            stack.enter_context(Exposed(status, manner.metrics))
        yield together(*tells)


@contextmanager
def connected(run: Run, study: Study, manner: Manner, tell: Tell) -> Iterator[Networked]:
    """The engine of a run, let go at the end; only a run that is done tells its sites so."""
    served, names = run.served or {}, tuple(site.name for site in study.sites)
    for name in manner.without:
        if name not in names:
            raise StudyError(f"--without names '{name}', which is no site of the study")
    patience = {} if manner.patience is None else {"patience": str(manner.patience)}
    posting = Posting(
        run=run.name,
        study=study.text,
        parties=names,
        folder=run.folder,
        own=manner.own or (Path(served["own"]) if served.get("own") else None),
        settings={**served.get("settings", {}), **patience},
        wait=manner.wait,
        timeout=manner.timeout,
        without=manner.without,
        tell=tell,
    )
    engine = connect(str(served.get("engine")), posting)
    done = False
    try:
        yield engine
        done = True
    except QuorumLost as lost:
        engine.forget(lost.missing)  # once mended, they are to be asked anew
        raise
    finally:
        engine.close(done=done)
