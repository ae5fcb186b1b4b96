"""A study met by one site that serves it: the desk that its own file and the study's text make together."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from dataclasses import replace
from pathlib import Path

from fedclust.app.study import Study, parse_study
from fedclust.core.errors import StudyError
from fedclust.models.methods import method_registry
from fedclust.questions.schema import Column, Schema
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.site_file import SiteFile

QUESTION_PACKAGES = ("fedclust.algorithms", "fedclust.questions", "fedclust.privacy")


def import_questions() -> None:
    """Import whatever asks: a site must understand all that a coordinator of its version may want to know.

    The methods that other packages register bring their questions with them.
    """
    method_registry()
    for package in map(importlib.import_module, QUESTION_PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as absent:
                if str(absent.name).partition(".")[0] == "fedclust":
                    raise  # an extra may be absent, and its questions with it; a part of fedclust may not


def open_session(site: SiteFile, *, data: Path | None = None, study: Path | None = None) -> SiteSession:
    """The site's door, for one process. `data` stands in for the file's source; `study` allows no other."""
    if site.state is None:
        raise StudyError("the site file names no state; name a folder in which ledger, memory and keys are kept")
    if study is None and site.approval is None and not site.policy.has_no_rules:
        raise StudyError(
            "name the study that this site serves, or an approval in the site file: rules count what leaves in each "
            "study, so whoever may change a letter of the study could begin to count anew"
        )
    import_questions()
    own = site if data is None else replace(site, source=data)
    try:
        only = None if study is None else study.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, UnicodeDecodeError):
        raise StudyError(f"there is no study at {study}; check the path") from None
    return SiteSession(own.name, site.state, lambda text: open_study_server(own, text), only_study=only)


def open_study_server(site: SiteFile, text: str) -> SiteServer:
    """The desk at which a site serves a study; refuses a study that is not for it, or that says too much of it."""
    try:
        site.check_study(text)
    except tomllib.TOMLDecodeError:
        raise StudyError("the study is not TOML; ask for it again") from None
    study = parse_study(text, folder=Path(), served=True)
    schema = site_schema(study, site.name)
    return site.open_server(
        columns=tuple(schema),
        schema=schema,
        seed=study.seed,
        id=site.id or study.id,
        sort=study.split == "columns" and study.align is None and (site.id or study.id) is not None,
        repeats=study.align is not None,
        split="labels" if study.cluster.options.get("opens") == "labels" else study.split,
        method=study.cluster.method,
        needs_alignment=study.align is not None,
    )


def site_schema(study: Study, party: str) -> Schema:
    """The columns that a site of a served study is to hold, and what they are."""
    own = next((site for site in study.sites if site.name == party), None)
    if own is None:
        raise StudyError(f"the study has no site '{party}'; it names {', '.join(s.name for s in study.sites)}")
    if study.split == "columns":
        if own.columns is None:
            raise StudyError(f"[sites.{party}] must name its columns: nobody can look them up at a site that serves")
        return {name: study.schema.get(name, Column()) for name in own.columns}
    if not study.schema:
        raise StudyError("the study must name its columns: nobody can look them up at sites that serve")
    return study.schema
