"""Rows that get noise before anyone else sees them: each row once, with the same outcome from then on.

Local differential privacy is a promise about all outcomes of a row. A site therefore stores the noised rows and returns
them whenever the same rows come again, over rounds, runs and crashes. A row that comes together with other rows, or
with columns that were not noised together before, would need fresh noise. That is a second outcome: it costs its
epsilon again, and is refused beyond the budget. A site recognises rows by keyed fingerprints of everything that their
source holds, whatever a study selects. Equal rows of one batch count as different rows.
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
from fedclust.site.sources.source_interface import RESIDENT_BYTES, PackedRows, Source, regroup, rows_per_block

MECHANISMS = ("window", "laplace", "paper")
WEAK_EPSILON = 10.0  # an epsilon from which the promise is weak
ROW_FINGERPRINT_BYTES = 16  # bytes of a fingerprint
BUDGET_TOLERANCE = 1 + 2.0**-40  # a sum of floats may end slightly above its true value
PAPER_NOTE = (
    "Sites added the noise of paper 3 to their rows. This is NOT differential privacy: the size of the noise depends "
    "on the site's own rows, so one row affects the noise of all other rows; the epsilon applies to each of {columns} "
    "columns, not to a row; and all sites draw the same noise. Use it only to reproduce the paper's figures."
)
PRIVACY_NOTE = (
    "Sites added noise to every row before any computation (mechanism '{mechanism}'). Epsilon is {epsilon:g} for a "
    "whole row of {columns} columns and covers everything that the run reveals."
)
WEAK_EPSILON_NOTE = (
    "An epsilon of {epsilon:g} gives little protection: replacing one row by another row can make a result up to "
    "e^{epsilon:g} times as likely."
)


@dataclass(frozen=True)
class NoiseMemory:
    """A site's record of its noise: fingerprints of rows, what each row has spent, and the outcomes."""

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
                f"{path} is damaged, or from another version of fedclust, so the site cannot recognise rows "
                "that it has already released; restore the file"
            ) from None

    def fingerprint_rows(self, whole: Words) -> npt.NDArray[np.uint8]:
        """Return the fingerprints of rows, which nobody can compute without the key."""
        return self._fingerprints([row.tobytes() for row in np.ascontiguousarray(whole)])

    def fingerprint_columns(self, rows: Floats, low: Floats, high: Floats) -> npt.NDArray[np.uint8]:
        """Return the fingerprints of columns by their values and bounds, independent of a study's names, order or
        encoding.
        """
        exact = np.ascontiguousarray(rows.T) + 0.0
        said = [exact[at].tobytes() + low[at].tobytes() + high[at].tobytes() for at in range(len(exact))]
        return self._fingerprints([b"%d " % said[:at].count(one) + one for at, one in enumerate(said)])

    def find_outcomes(self, name: str, view: npt.NDArray[np.uint8]) -> Floats | None:
        """Return the outcomes of these columns if a batch of the same rows has all of them."""
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
    """Noise that sites add to their rows before any computation. `epsilon` applies to a whole row.

    Parameters
    ----------
    epsilon : the guarantee for each row. A noisy row is at most e^epsilon times as likely as it would be from any other
        row.
    bounds : (low, high) for all columns, or one pair for each column, chosen without looking at the rows. Values
        outside the bounds are clipped. A mapping {column: (low, high)} is also possible.
    mechanism : "window", "laplace" (drawn by OpenDP), or "paper": the noise of paper 3, which is not differentially
        private.
    budget : the maximum total epsilon of a row that appears in several batches or with other columns. None means
        `epsilon`, so each row gets noise once.
    folder : where sites store the noisy rows and the epsilon spent, with one folder for each site. None stores both in
        this object; then use the same object for all rounds.

    Examples
    --------
    >>> import numpy as np, fedclust as fc
    >>> X = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 200, axis=0)
    >>> noise = fc.LocalNoise(12, bounds=(-5, 15))
    >>> model = fc.KFed(3).fit(fc.Federation.local(noise.apply_to({"a": X[::2], "b": X[1::2]})))
    >>> model.notes_[0]
    "Sites added noise to every row before any computation (mechanism 'window'). Epsilon is 12 for a whole row of 2 \
columns and covers everything that the run reveals."
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
            raise StudyError("noise needs public bounds, because its size must not depend on the rows; set bounds")
        self.epsilon = float(epsilon)
        self.bounds = bounds
        self.mechanism = mechanism
        self.budget = float(epsilon if budget is None else budget)
        self.folder = None if folder is None else Path(folder)
        self._memory: dict[str, NoiseMemory] = {}

    @property
    def digest(self) -> str:
        """A digest of what a steward agrees to; any change in the settings changes it."""
        said = [self.epsilon, self.bounds, self.mechanism, self.budget]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()

    def rehearsal_copy(self) -> LocalNoise:
        """Return the same noise without storage, because the outcomes of a rehearsal stay in the process."""
        return LocalNoise(self.epsilon, bounds=self.bounds, mechanism=self.mechanism, budget=self.budget)

    def apply_to(self, sites: Mapping[str, Any]) -> dict[str, NoisedSource]:
        """Return sources for a federation whose rows are noised."""
        return {party: NoisedSource(spec, self) for party, spec in sites.items()}

    def max_spent(self, site: str) -> float:
        """Return the most that a row of a site has spent."""
        return float(self._read_memory(site).spent.max(initial=0.0))

    def noise_rows(self, source: Source, whole: Words) -> PackedRows:
        """Return a source's rows with noise, the same each time these rows come; `whole` is everything their source
        holds.
        """
        blocks = [np.asarray(block.T, np.float64) for block in source.blocks()]
        rows = np.concatenate([np.empty((0, len(source.columns))), *blocks])
        if not np.isfinite(rows).all():
            raise DataError(
                f"site '{source.site}' has missing values, which noise would not hide; fill them, or remove those "
                "columns from `columns`"
            )
        if len(whole) != len(rows):
            raise DataError(
                f"the data of site '{source.site}' changed while it was read; keep it unchanged, and start the "
                "run again"
            )
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
        """Return the notes that a result made from these rows must carry."""
        if self.mechanism == "paper":
            return (PAPER_NOTE.format(columns=columns),)
        remarks = [PRIVACY_NOTE.format(mechanism=self.mechanism, epsilon=self.epsilon, columns=columns)]
        return (
            (*remarks, WEAK_EPSILON_NOTE.format(epsilon=self.epsilon))
            if self.epsilon >= WEAK_EPSILON
            else tuple(remarks)
        )

    def _recall_or_draw(self, site: str, rows: Floats, whole: Words, low: Floats, high: Floats) -> Floats:
        """Return stored outcomes, or draw them and store them before anyone sees them."""
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
        """Return the record with a batch's epsilon charged to each of its rows."""
        known = {mark.tobytes(): at for at, mark in enumerate(kept.marks)}
        new = {mark.tobytes() for mark in marks}
        again = np.array([known[mark] for mark in new if mark in known], np.int64)
        spent = kept.spent.copy()
        spent[again] += self.epsilon
        if max(spent[again].max(initial=0.0), self.epsilon) > self.budget * BUDGET_TOLERANCE:
            raise OverBudget(
                f"rows of site '{site}' appear again, with other rows or other columns than before; fresh noise would "
                "exceed their budget. Provide only new rows, use the columns released before, or raise `budget`"
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
        """Read what is stored now, because another process may have added to it on disk."""
        path = self._path(site)
        if path is None:
            return self._memory.setdefault(site, NoiseMemory.empty())
        return NoiseMemory.read_file(path) if path.exists() else NoiseMemory.empty()

    @contextmanager
    def _hold_lock(self, site: str) -> Iterator[None]:
        """Hold a lock from reading what was spent to recording it."""
        path = self._path(site)
        if path is None:
            yield
            return
        with waiting_lock(path.with_name("lock")):
            yield

    def _path(self, site: str) -> Path | None:
        return None if self.folder is None else self.folder / site / "noised"

    def _column_bounds(self, columns: tuple[str, ...]) -> tuple[Floats, Floats]:
        if self.bounds is None:  # paper 3's noise uses no bounds
            return np.zeros(len(columns)), np.ones(len(columns))
        try:
            given = [self.bounds[c] for c in columns] if isinstance(self.bounds, Mapping) else self.bounds
            pairs = np.broadcast_to(np.asarray(given, np.float64), (len(columns), 2))
        except (KeyError, TypeError, ValueError):
            pairs = np.full((1, 2), np.nan)
        if not (np.isfinite(pairs).all() and (pairs[:, 0] <= pairs[:, 1]).all()):
            raise StudyError(
                "the bounds of noise must be finite pairs (low, high): one pair for all columns, or one for each column"
            )
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


@dataclass(frozen=True, eq=False, repr=False)
class NoisedRows(PackedRows):
    """Noised rows, with the notes that a result made from them must carry."""

    remarks: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class NoisedSource:
    """A site's source, and the only noise under which it may be read."""

    spec: Any
    noise: LocalNoise

    def open_rows(self, source: Callable[[Any], Source], whole: Callable[[Any], Words]) -> PackedRows:
        plain = source(self.spec)
        return self.noise.noise_rows(plain, whole(self.spec))
