"""Opens the server with which a site takes part in a study, from the site's own file and the study's text."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from dataclasses import replace
from pathlib import Path

from fedclust.app.served_columns import site_schema
from fedclust.app.study import Study, parse_study
from fedclust.app.study_promises import study_terms
from fedclust.app.verified_site import VerifiedStudy
from fedclust.core.errors import StudyError
from fedclust.models.methods import method_registry
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.site_file import SiteFile

QUESTION_PACKAGES = ("fedclust.algorithms", "fedclust.questions", "fedclust.privacy")


def import_questions() -> None:
    """Import all questions: a site must understand everything that a coordinator of its version may ask.

    Methods from other packages bring their own questions.
    """
    method_registry()
    for package in map(importlib.import_module, QUESTION_PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as absent:
                if str(absent.name).partition(".")[0] == "fedclust":
                    raise  # an optional extra may be missing, but no module of fedclust itself


def open_session(site: SiteFile, *, data: Path | None = None, study: Path | None = None) -> SiteSession:
    """Open the site's session for one process. `data` replaces the file's source; only `study` is allowed."""
    if site.state is None:
        raise StudyError("the site file has no state; set state to a folder for the ledger, the memory and the keys")
    if study is None and site.approval is None and not site.policy.has_no_rules:
        raise StudyError(
            "give the study that this site serves with --study, or set approval in the site file; without these, a "
            "coordinator that changes the study's text could restart this site's count of what it has sent"
        )
    import_questions()
    own = site if data is None else replace(site, source=data)
    try:
        only = None if study is None else study.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, UnicodeDecodeError):
        raise StudyError(f"{study} does not exist or is not UTF-8 text; check the path") from None
    return SiteSession(own.name, site.state, lambda text: open_study_server(own, text), only_study=only)


def open_study_server(site: SiteFile, text: str) -> SiteServer:
    """Open the server of a site for a study; refuse a study that is not for it, or that sets what only a site may."""
    try:
        site.check_study(text)
    except tomllib.TOMLDecodeError:
        raise StudyError("the study is not valid TOML; ask the coordinator for it again") from None
    return open_server_for_study(site, parse_study(text, folder=Path(), served=True))


def open_server_for_study(site: SiteFile, study: Study) -> SiteServer:
    """Open the server of a site for a study that was read; whatever the study sets for the site is not used."""
    schema = site_schema(study, site.name)
    site.policy.refuse_unlisted_columns((*schema, *([study.id] if study.id else [])), site.name)
    return site.open_server(
        columns=tuple(schema),
        schema=schema,
        seed=study.seed,
        id=site.id or study.id,
        sort=study.split == "columns" and study.align is None and (site.id or study.id) is not None,
        repeats=study.align is not None,
        split="labels" if study.cluster.options.get("opens") == "labels" else study.split,
        method=study.cluster.method,
        floored=study.cluster.options.get("opening") == "floored",
        needs_alignment=study.align is not None,
        promised=lambda names: study_terms(study, names),
        open_replay=VerifiedStudy(study, site.state).open_replay if study.is_verified else None,
    )
