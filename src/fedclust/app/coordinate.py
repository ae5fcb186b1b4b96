"""What only runs with remote sites need: checks of the study, the engine that reaches sites, and event listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fedclust.app.run_folder import EngineChoice, Run
from fedclust.app.served_study import UnreachedSites, open_served_study, refuse_site_only_keys
from fedclust.app.study import Study
from fedclust.core.errors import QuorumLost, StudyError
from fedclust.engines.attendance import EventListener, ignore_event
from fedclust.engines.metrics_endpoint import MetricsEndpoint
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.registry import RunSpec, check_run_spec, connect, find_engine, resolve_settings
from fedclust.engines.run_status import EventLog, combine_listeners
from fedclust.federation.aggregation import Aggregation


@dataclass(frozen=True)
class RunOptions:
    """How one process works on a run: whether it waits for answers, which sites it skips, and who observes it."""

    wait: bool = False
    timeout: float | None = None
    without: frozenset[str] = frozenset()
    log: Path | None = None
    metrics: int | None = None  # a port of the loopback address
    patience: float | None = None  # seconds, instead of the run's own setting
    coordinator_file: Path | None = None  # the coordinator's file, if it moved since the run began

    def refuse_for_local_sites(self) -> None:
        """Refuse options for remote sites if all sites are in this process."""
        said = {"--wait": self.wait, "--timeout": self.timeout is not None, "--without": self.without}
        said |= {"--log-json": self.log is not None, "--metrics": self.metrics is not None}
        said |= {"--own": self.coordinator_file is not None}
        for option in filter(said.get, said):
            raise StudyError(
                f"{option} is for remote sites, but all sites of this run are in this process; leave it out"
            )


def check_served_study(study: Study, folder: Path, engine_choice: EngineChoice) -> EngineChoice:
    """Refuse a study that remote sites could not run; return the engine choice as the run stores it."""
    settings = resolve_settings(engine_choice.engine, engine_choice.settings)
    refuse_site_only_keys(study)
    names = tuple(site.name for site in study.sites)
    study.aggregation.check_parties(names)
    if study.aggregation.is_blind and not find_engine(engine_choice.engine).can_lead:
        raise StudyError(
            f"engine '{engine_choice.engine}' does not support blind aggregation; use engine 'files', or set "
            "aggregation to 'secure'"
        )
    open_served_study(replace(study, aggregation=Aggregation(), is_verified=False), UnreachedSites(names))
    check_run_spec(
        engine_choice.engine,
        RunSpec("", study.text, names, folder, coordinator_file=engine_choice.coordinator_file, settings=settings),
    )
    return replace(engine_choice, settings=settings)


def check_waiting(run: Run, study: Study, options: RunOptions) -> None:
    """Refuse to stop in the middle of what must be done in one session, because its keys are not stored."""
    if options.wait or run.engine_choice is None or not find_engine(run.engine_choice.engine).may_take_days:
        return
    if study.aggregation.mode == "secure" and study.cluster.options.get("quorum", "all") != "all":
        raise StudyError(
            "with a quorum other than 'all', secure aggregation must finish each sum in one session; use --wait to "
            "wait for the answers"
        )
    if study.align is not None:
        raise StudyError(
            "the sites must align their rows in one session, because this step is not recorded; use --wait to wait "
            "until it is done"
        )


def notify_sites_of_end(run: Run, coordinator_file: Path | None = None) -> None:
    """Inform the sites that the run is finished, in case an earlier process was killed before it could."""
    if run.engine_choice is not None and find_engine(run.engine_choice.engine).may_take_days:
        with (
            run.lock(),
            connected_engine(run, run.study(), RunOptions(coordinator_file=coordinator_file), ignore_event),
        ):
            pass


@contextmanager
def event_listeners(run: Run, options: RunOptions) -> Iterator[EventListener]:
    """Keep the event listeners open while the process works on the run."""
    with ExitStack() as stack:
        status = run.open_status()
        listeners: list[EventListener] = [status]
        if options.log is not None:
            log = EventLog(options.log, run.name)
            stack.callback(log.close)
            listeners.append(log)
        if options.metrics is not None:
            stack.enter_context(MetricsEndpoint(status, options.metrics))
        yield combine_listeners(*listeners)


@contextmanager
def connected_engine(run: Run, study: Study, options: RunOptions, notify: EventListener) -> Iterator[NetworkedEngine]:
    """Connect the engine of a run and close it at the end; only a finished run informs its sites."""
    served, names = run.engine_choice, tuple(site.name for site in study.sites)
    if served is None:
        raise StudyError(f"the run in {run.folder} uses a single process and has no engine to contact remote sites")
    for name in options.without:
        if name not in names:
            raise StudyError(
                f"--without names '{name}', which is not a site of the study; use one of {', '.join(names)}"
            )
    patience = {} if options.patience is None else {"patience": str(options.patience)}
    spec = RunSpec(
        run=run.name,
        study=study.text,
        parties=names,
        folder=run.folder,
        coordinator_file=options.coordinator_file or served.coordinator_file,
        settings={**served.settings, **patience},
        wait=options.wait,
        timeout=options.timeout,
        without=options.without,
        notify=notify,
    )
    engine = connect(served.engine, spec)
    done = False
    try:
        yield engine
        done = True
    except QuorumLost as lost:
        engine.forget_replies(lost.missing)  # once they are fixed, they are asked again
        raise
    finally:
        engine.close(done=done)
