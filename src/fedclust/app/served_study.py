"""Opens a study whose sites are elsewhere: the study itself must describe every column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedclust.algorithms.shared.spread_free_centers import STUDY_CELL_FLOOR
from fedclust.app.served_columns import site_schema, study_column_names, study_schema
from fedclust.app.study import OpenStudy, Study
from fedclust.app.study.toml_text import parse_toml
from fedclust.core.drive import Engine
from fedclust.core.errors import StudyError
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.engines.outcome_log import OutcomeLog
from fedclust.federation.aggregation import EnrolledSites
from fedclust.federation.federation import Federation
from fedclust.federation.run_record import RunRecord
from fedclust.questions.schema import encoded_names
from fedclust.site.site_file import find_site_only_keys


def open_served_study(
    study: Study,
    engine: Engine,
    record: RunRecord | None = None,
    *,
    enrolled: EnrolledSites | None = None,
) -> OpenStudy:
    """Open a study whose sites are reached by an engine; the study itself must describe all columns.

    `enrolled` has the lead's keys if this process is the lead's; then the coordinator adds the answers up elsewhere.
    """
    if study.split == "columns" and study.cluster.choice is not None:
        raise StudyError(
            "K cannot be chosen over a column split with remote sites, because an index needs centres that only the "
            "sites know; set k in [cluster] to a number"
        )
    fed = Federation(
        engine,
        {site.name: encoded_names(site_schema(study, site.name)) for site in study.sites},
        columns=study_column_names(study),
        split=study.split,
        run=record,
        seed=study.seed,
        schema=study_schema(study),
        aggregation=study.aggregation,
        enrolled=enrolled,
        align=study.align,
        coordinator_adds=enrolled is not None,
        verified=study.is_verified,
    )
    fed.cell_floor = STUDY_CELL_FLOOR
    estimator = study.make_estimator(fed.columns)
    estimator.protocol(fed).close()  # checks the parameters; no step is taken
    return OpenStudy(study, fed, estimator)


def send_outcomes(ready: OpenStudy, engine: NetworkedEngine, folder: Path) -> None:
    """Have the engine send each site of a verified run what became of every step; `folder` is that of the run."""
    if ready.study.is_verified:
        engine.outcomes = OutcomeLog(folder / "outcomes-sent-again.json")
        ready.fed.record_steps(engine.outcomes)


class UnreachedSites:
    """Sites that were not contacted yet, to check whether a study can run at all."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties

    def exchange(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}


def refuse_site_only_keys(study: Study) -> None:
    """Refuse a study that sets what a remote site sets itself."""
    for name, key in find_site_only_keys(parse_toml(study.text, Path("the study"))):
        raise StudyError(f"[sites.{name}] sets {key}; a remote site sets this in its own file, so leave it out")
