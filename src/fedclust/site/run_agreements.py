"""What a run has fixed at a site: how its columns are seen, and the other values that all sites agree on once.

A view, a share of a sample or a unit of distances is a result of the first answers of a run, so no contract can
compute it. But an honest run fixes each of them once. A second one would tell the two apart by single rows: a row that
is rounded differently, or that is in one sample and not in the other. So a site remembers the first and refuses others.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import DataError
from fedclust.core.question_types import AgreedValuesQuestion, UnitlessQuestion
from fedclust.core.site_interface import View
from fedclust.core.study_terms import VIEW_SLACK_BITS, StudyTerms, declared_exponents, is_bounded_view
from fedclust.core.types import Units
from fedclust.kernels.units import bounds_above

RAW, SCALED = "bounds of columns", "scale of columns"
MAX_STUDY_VARIANTS = 3  # times what one run fixes, for all runs of a study: a run may be repeated with other rows
MAX_STUDY_BOUNDS = 16  # bounds of columns in all runs of a study: each says powers of two only
MAX_RUNS_WITH_ABSENCES = 3  # values where sites may be absent when a run agrees on them
ORIGIN_SLACK_BITS = 3  # an origin lies near the rows: a range begins below the least of them
MAX_VIEW_EXPONENT = 900

Facts = dict[str, list[Any]]


class RunAgreements:
    """The values that runs have fixed, in memory and, if a folder is given, on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = None if folder is None else folder / "agreements.json"
        self._facts_by_run: dict[str, Facts] = {}
        if self._path is not None and self._path.exists():
            try:
                self._facts_by_run = json.loads(self._path.read_text())
            except ValueError:
                raise DataError(f"{self._path} was altered; restore it as the site wrote it") from None

    def allows(self, terms: StudyTerms, run: str, message: object) -> bool:
        """Return whether a question keeps to what its run has fixed."""
        return self._extended(terms, run, message) is not None

    def remember(self, terms: StudyTerms, run: str, message: object) -> None:
        """Fix what a question says first; it is on disk before the answer is computed."""
        found = self._extended(terms, run, message)
        if found is None or found == self._facts_by_run.get(run, {}):
            return
        self._facts_by_run[run] = found
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._path, json.dumps(self._facts_by_run))

    def _extended(self, terms: StudyTerms, run: str, message: object) -> Facts | None:
        """Return the facts of a run with those of a question, or None if the question contradicts them."""
        facts = {name: list(values) for name, values in self._facts_by_run.get(run, {}).items()}
        views = sorted(views_of(message), key=lambda view: view.origin is not None)
        for view in views:
            if not is_bounded_view(terms, view):
                return None
            _add_scale(facts, view)
            if not isinstance(message, UnitlessQuestion) and not _add_bounds(terms, facts, view):
                return None
        if isinstance(message, AgreedValuesQuestion):
            for name, value in message.agreed_values().items():
                _add(facts, name, int(value))
        return facts if self._keeps_limits(terms, run, facts) else None

    def _keeps_limits(self, terms: StudyTerms, run: str, facts: Facts) -> bool:
        often = 1 if terms.needs_everyone else MAX_RUNS_WITH_ABSENCES
        study = run.partition("-")[2] or run
        for name, values in facts.items():
            most, in_all = _limits(terms, name, often)
            others = [
                value
                for other, known in self._facts_by_run.items()
                if other != run and (other.partition("-")[2] or other) == study
                for value in known.get(name, ())
            ]
            distinct = {json.dumps(value) for value in (*values, *others)}
            if len(values) > most or len(distinct) > in_all:
                return False
        return True


def _limits(terms: StudyTerms, name: str, often: int) -> tuple[int, int]:
    """How many different values of a kind one run fixes, and all runs of the study."""
    if name == RAW:
        return often + (terms.low is not None), MAX_STUDY_BOUNDS
    if name == SCALED:
        return terms.max_scaled_views, MAX_STUDY_VARIANTS * terms.max_scaled_views
    most = often * terms.fits if terms.split == "columns" else often
    return most, MAX_STUDY_VARIANTS * most


def views_of(message: object) -> Iterator[View]:
    """Yield every view in a question, those of the partitions in it included."""
    if isinstance(message, View):
        yield message
    elif isinstance(message, Mapping):
        for value in message.values():
            yield from views_of(value)
    elif isinstance(message, tuple):
        for value in message:
            yield from views_of(value)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            yield from views_of(vars(message)[field.name])


def _add(facts: Facts, name: str, value: Any) -> None:
    known = facts.setdefault(name, [])
    if value not in known:
        known.append(value)


def _add_scale(facts: Facts, view: View) -> None:
    """Add a view's origin and spread, if there are any."""
    if view.origin is not None and view.spread is not None:
        _add(facts, SCALED, hashlib.sha256(view.origin.tobytes() + view.spread.tobytes()).hexdigest())


def _add_bounds(terms: StudyTerms, facts: Facts, view: View) -> bool:
    """Add a view's bounds: of raw columns as they are; of scaled ones they must follow from those of raw columns."""
    declared = declared_exponents(terms)
    if view.origin is None or view.spread is None:
        if declared is not None and (view.exponents > declared).any():
            return False
        _add(facts, RAW, view.exponents.tolist())
        return True
    raw = [np.array(one, np.int32) for one in facts.get(RAW, ())]
    return any(_follows(view, one) for one in (raw if declared is None else [*raw, declared]))


def _follows(view: View, raw: Units) -> bool:
    """Whether the bounds of a scaled view are those that raw bounds give, or hardly wider."""
    if view.origin is None or view.spread is None:
        return False
    if not (np.abs(view.origin) <= np.ldexp(1.0, raw + ORIGIN_SLACK_BITS)).all():
        return False
    largest = view.transform_bound(np.ldexp(1.0, raw))
    if not np.isfinite(largest).all():
        return False
    usual = bounds_above(largest.tolist())
    wide = (view.exponents >= usual) & (view.exponents <= usual + VIEW_SLACK_BITS)
    return bool(wide.all() and (view.exponents <= MAX_VIEW_EXPONENT).all())
