"""Rows that are noised before anyone else sees them: each once, and the same outcome ever after.

Local differential privacy is a promise about a row's outcomes, all of them. A site therefore keeps the noised rows and
gives them out again whenever the same rows come, over rounds, runs and crashes. A row that comes among other rows, or
with columns that were not noised together before, would be noised anew: that is a second outcome, costs its epsilon
again, and is refused beyond the budget. Rows are known again by keyed fingerprints of all that their source holds of
them, whatever a study selects; equal rows of one batch are different rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedclust.core import wire
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import DataError, OverBudget, StudyError, WireError
from fedclust.core.file_locks import waiting_lock
from fedclust.core.types import Floats
from fedclust.privacy import row_noise
from fedclust.site.sources.array_rows import Words
from fedclust.site.sources.base import RESIDENT_BYTES, PackedRows, Source, regroup, rows_per_block

MECHANISMS = ("window", "laplace", "paper")
WEAK_EPSILON = 10.0  # an epsilon from which on the promise says little
ROW_FINGERPRINT_BYTES = 16  # bytes of a fingerprint
BUDGET_TOLERANCE = 1 + 2.0**-40  # a sum of floats may end just above what it stands for
PAPER_NOTE = (
    "Rows carry paper 3's noise, which is NOT differential privacy. Its size follows from the site's own rows, so one "
    "row shows in the noise of all others. Its epsilon is for each of {columns} columns, not for a row. All sites draw "
    "the same noise. Use it only to repeat the paper's figures."
)
PRIVACY_NOTE = (
    "Sites added noise to every row before anything was computed ({mechanism}): epsilon {epsilon:g} for a whole row "
    "of {columns} columns, over everything that the run shows."
)
WEAK_EPSILON_NOTE = (
    "An epsilon of {epsilon:g} promises little: a row may make an outcome up to e^{epsilon:g} times as likely as "
    "another row would."
)


@dataclass(frozen=True)
class NoiseMemory:
    """What a site remembers of the noise it gave: fingerprints of rows, what each has spent, and the outcomes."""

    key: bytes
    marks: npt.NDArray[np.uint8]
    spent: Floats
    batches: dict[str, Floats]
    views: dict[str, npt.NDArray[np.uint8]]  # fingerprints of the columns of each batch

    @classmethod
    def empty(cls) -> NoiseMemory:
        return cls(secrets.token_bytes(32), np.empty((0, ROW_FINGERPRINT_BYTES), np.uint8), np.empty(0), {}, {})

    @classmethod
    def read_file(cls, path: Path) -> NoiseMemory:
        try:
            return wire.decode(cls, path.read_bytes())
        except WireError:
            raise DataError(
                f"{path} is damaged, or of another version of fedclust; rows that were shown would not be known again"
            ) from None

    def fingerprint_rows(self, whole: Words) -> npt.NDArray[np.uint8]:
        """The fingerprints of rows, which nobody can make without the key."""
        return self._fingerprints([row.tobytes() for row in np.ascontiguousarray(whole)])

    def fingerprint_columns(self, rows: Floats, low: Floats, high: Floats) -> npt.NDArray[np.uint8]:
        """The fingerprints of columns by their values and bounds: however a study calls, orders or encodes them."""
        exact = np.ascontiguousarray(rows.T) + 0.0
        said = [exact[at].tobytes() + low[at].tobytes() + high[at].tobytes() for at in range(len(exact))]
        return self._fingerprints([b"%d " % said[:at].count(one) + one for at, one in enumerate(said)])

    def find_outcomes(self, name: str, view: npt.NDArray[np.uint8]) -> Floats | None:
        """The outcomes of these columns, where a batch of the same rows has them all."""
        for own, found in self.views.items():
            at = {mark.tobytes(): place for place, mark in enumerate(found)}
            if own.startswith(name) and all(mark.tobytes() in at for mark in view):
                return np.ascontiguousarray(self.batches[own][:, [at[mark.tobytes()] for mark in view]])
        return None

    def with_batch(self, name: str, view: npt.NDArray[np.uint8], outcomes: Floats) -> NoiseMemory:
        own = f"{name} {len(self.batches)}"
        return replace(self, batches={**self.batches, own: outcomes}, views={**self.views, own: view})

    def _fingerprints(self, texts: list[bytes]) -> npt.NDArray[np.uint8]:
        found = b"".join(
            hashlib.blake2b(text, digest_size=ROW_FINGERPRINT_BYTES, key=self.key).digest() for text in texts
        )
        return np.frombuffer(found, np.uint8).reshape(-1, ROW_FINGERPRINT_BYTES)


class LocalNoise:
    """Noise that sites put on their rows: `epsilon` for a whole row, between public `bounds`.

    Parameters
    ----------
    epsilon : the promise to each row. An outcome is at most e^epsilon times as likely as from any other row.
    bounds : (low, high) for all columns, or a pair each, known without looking at the rows; values beyond count as the
        bound. A table {column: (low, high)} works too.
    mechanism : "window", "laplace" (drawn by OpenDP), or "paper": paper 3's noise, which is not private.
    budget : what a row may spend in all, where it comes in several batches or with other columns; None: epsilon, so
        once.
    folder : where sites keep outcomes and what was spent, a folder for each; None: in this object, so use one for all
        rounds.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 200, axis=0)
    >>> noise = fc.LocalNoise(12, bounds=(-5, 15))
    >>> model = fc.KFed(3).fit(fc.Federation.local(noise.apply_to({"a": X[::2], "b": X[1::2]})))
    >>> model.notes_[0]
    'Sites added noise to every row before anything was computed (window): epsilon 12 for a whole row of 2 columns, \
over everything that the run shows.'
    """

    def __init__(
        self,
        epsilon: float,
        *,
        bounds: Any = None,
        mechanism: str = "window",
        budget: float | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if mechanism not in MECHANISMS:
            raise StudyError(f"mechanism is {mechanism!r}; choose one of {', '.join(MECHANISMS)}")
        for name, value in (("epsilon", epsilon), ("budget", epsilon if budget is None else budget)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise StudyError(f"{name} is {value!r}; it must be a number above 0")
        if bounds is None and mechanism != "paper":
            raise StudyError("noise needs public bounds, or the rows would decide its size; set bounds")
        self.epsilon = float(epsilon)
        self.bounds = bounds
        self.mechanism = mechanism
        self.budget = float(epsilon if budget is None else budget)
        self.folder = None if folder is None else Path(folder)
        self._memory: dict[str, NoiseMemory] = {}

    @property
    def digest(self) -> str:
        """What a steward agrees to: one letter of it changes this."""
        said = [self.epsilon, self.bounds, self.mechanism, self.budget]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    def rehearsal_copy(self) -> LocalNoise:
        """The same noise, kept nowhere: outcomes of a rehearsal leave nobody's hands."""
        return LocalNoise(self.epsilon, bounds=self.bounds, mechanism=self.mechanism, budget=self.budget)

    def apply_to(self, sites: Mapping[str, Any]) -> dict[str, NoisedSource]:
        """Sources for a federation whose rows come out noised."""
        return {party: NoisedSource(spec, self) for party, spec in sites.items()}

    def max_spent(self, site: str) -> float:
        """The most that a row of a site has spent."""
        return float(self._read_memory(site).spent.max(initial=0.0))

    def noise_rows(self, source: Source, whole: Words) -> PackedRows:
        """A source's rows under noise, the same ones each time these rows come; `whole` is all there is of them."""
        blocks = [np.asarray(block.T, np.float64) for block in source.blocks()]
        rows = np.concatenate([np.empty((0, len(source.columns))), *blocks])
        if not np.isfinite(rows).all():
            raise DataError(
                f"site '{source.site}' lacks values, and gaps would show through noise; fill them, or leave the "
                "columns out"
            )
        if len(whole) != len(rows):
            raise DataError(f"site '{source.site}' was written to while it was read; start again")
        low, high = self._column_bounds(source.columns)
        noised = self._recall_or_draw(source.site, rows, whole, low, high)
        held = tuple(
            regroup(
                [list(noised.T)],
                width=noised.shape[1],
                rows=rows_per_block(noised.shape[1], RESIDENT_BYTES),
                dtype=np.float64,
            )
        )
        return NoisedRows(
            source.site, source.columns, held, source.ids(), remarks=self.remarks(int((high > low).sum()))
        )

    def remarks(self, columns: int) -> tuple[str, ...]:
        """What a result made of these rows must say."""
        if self.mechanism == "paper":
            return (PAPER_NOTE.format(columns=columns),)
        told = [PRIVACY_NOTE.format(mechanism=self.mechanism, epsilon=self.epsilon, columns=columns)]
        return (*told, WEAK_EPSILON_NOTE.format(epsilon=self.epsilon)) if self.epsilon >= WEAK_EPSILON else tuple(told)

    def _recall_or_draw(self, site: str, rows: Floats, whole: Words, low: Floats, high: Floats) -> Floats:
        """Outcomes from memory, or drawn, and kept before anyone sees them."""
        with self._hold_lock(site):
            kept = self._read_memory(site)
            marks, view = kept.fingerprint_rows(whole), kept.fingerprint_columns(rows, low, high)
            how = f"{self.mechanism} {self.epsilon!r} ".encode()
            name = hashlib.sha256(kept.key + how + marks.tobytes()).hexdigest()
            if (known := kept.find_outcomes(name, view)) is not None:
                return known
            kept = self._charge_rows(site, kept, marks)
            outcomes = self._draw_outcomes(rows, low, high)
            kept = kept.with_batch(name, view, outcomes)
            if (path := self._path(site)) is not None:
                write_file(path, wire.encode(kept))
            else:
                self._memory[site] = kept
            return outcomes

    def _charge_rows(self, site: str, kept: NoiseMemory, marks: npt.NDArray[np.uint8]) -> NoiseMemory:
        """The memory with a batch's epsilon on each of its rows."""
        known = {mark.tobytes(): at for at, mark in enumerate(kept.marks)}
        new = {mark.tobytes() for mark in marks}
        again = np.array([known[mark] for mark in new if mark in known], np.int64)
        spent = kept.spent.copy()
        spent[again] += self.epsilon
        if max(spent[again].max(initial=0.0), self.epsilon) > self.budget * BUDGET_TOLERANCE:
            raise OverBudget(
                f"rows of site '{site}' come again among others, or with other columns; under fresh noise they would "
                "spend more than their budget. Give new rows only, or columns shown before, or raise budget"
            )
        fresh = sorted(new - known.keys())
        return replace(
            kept,
            marks=np.concatenate(
                [kept.marks, np.frombuffer(b"".join(fresh), np.uint8).reshape(-1, ROW_FINGERPRINT_BYTES)]
            ),
            spent=np.concatenate([spent, np.full(len(fresh), self.epsilon)]),
        )

    def _draw_outcomes(self, rows: Floats, low: Floats, high: Floats) -> Floats:
        if self.mechanism == "paper":
            return row_noise.add_published_noise(rows, self.epsilon)
        how = row_noise.add_window_noise if self.mechanism == "window" else row_noise.add_laplace_noise
        return how(rows, low, high, self.epsilon)

    def _read_memory(self, site: str) -> NoiseMemory:
        """What is kept now: on disk another process may have added to it."""
        path = self._path(site)
        if path is None:
            return self._memory.setdefault(site, NoiseMemory.empty())
        return NoiseMemory.read_file(path) if path.exists() else NoiseMemory.empty()

    @contextmanager
    def _hold_lock(self, site: str) -> Iterator[None]:
        """From looking at what was spent to writing it down, nobody else may."""
        path = self._path(site)
        if path is None:
            yield
            return
        with waiting_lock(path.with_name("lock")):
            yield

    def _path(self, site: str) -> Path | None:
        return None if self.folder is None else self.folder / site / "noised"

    def _column_bounds(self, columns: tuple[str, ...]) -> tuple[Floats, Floats]:
        if self.bounds is None:  # paper 3's noise knows none
            return np.zeros(len(columns)), np.ones(len(columns))
        try:
            given = [self.bounds[c] for c in columns] if isinstance(self.bounds, Mapping) else self.bounds
            pairs = np.broadcast_to(np.asarray(given, np.float64), (len(columns), 2))
        except (KeyError, TypeError, ValueError):
            pairs = np.full((1, 2), np.nan)
        if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
            raise StudyError("bounds of noise must be finite pairs (low, high), one for all columns or one each")
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


@dataclass(frozen=True, eq=False, repr=False)
class NoisedRows(PackedRows):
    """Noised rows, with what a result made of them must say."""

    remarks: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class NoisedSource:
    """What a site brings, and the noise under which alone it may be read."""

    spec: Any
    noise: LocalNoise

    def open_rows(self, source: Callable[[Any], Source], whole: Callable[[Any], Words]) -> PackedRows:
        plain = source(self.spec)
        return self.noise.noise_rows(plain, whole(self.spec))
