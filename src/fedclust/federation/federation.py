"""The Federation: which sites take part, which engine carries the messages, and where the run is recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np

from fedclust.algorithms.cmeans.floored_decision import OpeningRecord
from fedclust.core.drive import Absence, Coordinator, Engine, StepRecorder, StepSettler, Watch
from fedclust.core.effects import ALL_PARTIES, Protocol, Quorum
from fedclust.core.errors import JournalError, QuorumLost, StudyError
from fedclust.core.journal import ROWS_RECORD, Journal, run_id
from fedclust.core.types import Floats, Ints, PartyId
from fedclust.engines.local_engine import LocalEngine
from fedclust.engines.run_status import KeepsLedgers, ObservedEngine
from fedclust.federation.aggregation import Aggregation, Aggregator, EnrolledSites
from fedclust.federation.local_sites import LocalSites
from fedclust.federation.policies_by_site import policies_by_site
from fedclust.federation.run_record import RunRecord
from fedclust.privacy.blind.blind_adder import AddingEngine
from fedclust.privacy.padding import Padding
from fedclust.questions.alignment import Alignment, align_rows
from fedclust.questions.declared_columns import (
    ColumnsArgument,
    WantedColumns,
    all_columns,
    declarations,
    joint_schema,
    one_schema,
    same_columns,
)
from fedclust.questions.schema import Column, Schema
from fedclust.site.policy import Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import Source, open_source, sort_by_id

T = TypeVar("T")
SITE_NAME_PATTERN = re.compile(r"\w(?:[\w .-]{0,62}\w)?")  # it is also the name of folders and appears in ledgers
MAX_SITE_NAME_BYTES = 200  # file systems do not allow much longer names
SHORT_PROTOCOL_ASKS = 16  # questions that a short script never exceeds
MAX_MAGNITUDE = 2.0**127  # of bounds and centres
Split = Literal["rows", "columns"]


class Federation:
    """A group of sites that cluster their rows together.

    >>> import numpy as np
    >>> fed = Federation.local({"a": np.zeros((6, 2)), "b": np.ones((6, 2))})
    >>> fed.parties, fed.columns
    (('a', 'b'), ('x0', 'x1'))
    """

    def __init__(
        self,
        engine: Engine,
        columns_by_party: Mapping[PartyId, tuple[str, ...]],
        *,
        columns: tuple[str, ...],
        split: Split = "rows",
        run: str | Path | RunRecord | None = None,
        seed: int = 0,
        timeout: float | None = None,
        schema: Schema | None = None,
        aggregation: Aggregation | None = None,
        enrolled: EnrolledSites | None = None,
        align: Alignment | None = None,
        local_sites: LocalSites | None = None,
        coordinator_adds: bool = False,
        verified: bool = False,
    ) -> None:
        self.align, self._is_aligned = align, align is None
        self.engine = engine
        self.split = split
        self.columns = columns
        self.schema = {name: Column() for name in columns} if schema is None else dict(schema)
        self.seed = seed
        self.cell_floor = 1  # the fewest rows behind a cell that initial centres are computed from; a study raises it
        record = _to_run_record(run)
        self.folder = None if record is None else record.folder
        self.local_sites = local_sites or LocalSites()
        self.watch: Watch | None = None
        self.opening_record = OpeningRecord()  # of all fits with opening="floored"
        self._columns_by_party = dict(columns_by_party)
        self.aggregation = aggregation or Aggregation()
        name = record.name if record is not None and record.name else run_id(self.folder)
        self._coordinator = Coordinator(engine, name, timeout=timeout)
        self._aggregator = Aggregator(self.aggregation, engine.parties, name, enrolled, verified=verified)
        # The coordinator of a blind run adds the answers; between machines, the lead uses one that runs elsewhere.
        self._adder = AddingEngine(engine) if self.aggregation.is_blind and not coordinator_adds else None
        if self._adder is not None:
            self._coordinator.engine = self._adder

    @classmethod
    def from_site_data(
        cls,
        site_data: Mapping[PartyId, tuple[SiteData, Policy]],
        *,
        columns: tuple[str, ...],
        split: Split,
        schema: Schema,
        run: str | Path | RunRecord | None,
        seed: int,
        wire: bool = False,
        aggregation: Aggregation,
        align: Alignment | None = None,
    ) -> Federation:
        """Create a federation from site data in this process, each with its own server and policy."""
        record = _to_run_record(run)
        folder = None if record is None else record.folder
        enrolled = EnrolledSites(tuple(site_data), folder)
        sites = {
            party: SiteServer(
                own_data,
                policy,
                seed=seed,
                folder=folder / "sites" / party if folder else None,
                durable=record is not None and record.durable,
                vaults=enrolled.vaults_opener(party),
                split=split,
            )
            for party, (own_data, policy) in site_data.items()
        }
        return cls(
            LocalEngine(sites, wire=wire),
            {party: own_data.source.columns for party, (own_data, _) in site_data.items()},
            columns=columns,
            split=split,
            run=record,
            seed=seed,
            schema=schema,
            aggregation=aggregation,
            enrolled=enrolled,
            align=align,
            local_sites=LocalSites(sites),
        )

    @classmethod
    def local(
        cls,
        sites: Mapping[PartyId, Any],
        *,
        columns: ColumnsArgument = None,
        order: Sequence[str] | None = None,
        split: Split = "rows",
        id: str | None = None,  # noqa: A002 the study's word
        aggregation: str | Aggregation = "plain",
        policy: str | Policy | Mapping[PartyId, str | Policy] = "none",
        run: str | Path | RunRecord | None = None,
        seed: int = 0,
        wire: bool = False,
        lead: PartyId | None = None,
        early_stopping: bool = False,
        align: str | None = None,
        duplicates: str = "refuse",
    ) -> Federation:
        """Create a federation whose sites are all in this process.

        `sites` maps site names to arrays, DataFrames, paths or queries.

        - `columns` lists the columns to use, or maps each to a `Column`. If the sites' columns differ, give `{site:
          columns}`. A column with levels becomes codes or indicator columns; `fed.columns` has the resulting names.
        - `split="columns"` matches rows by the column `id`, or by position without one. `order` lists all columns in
          the order that the centres use; by default, the columns of each site in turn.
        - `policy` is one policy for all sites, or `{site: policy}` for every site.
        - `align="psi"` finds the rows that all sites hold without revealing an id. `duplicates` says what to do
          with an id that a site has twice: "refuse" it, or use its "first" row.
        - `run` is a folder for the journal. `wire=True` encodes every message as bytes, as between machines.
        - `aggregation="secure"` reveals only sums over sites. "blind" hides them from the coordinator too: the site
          `lead` (by default the first) drives the run. A blind run uses all rounds unless `early_stopping` is set,
          which reveals when the run converged.
        """
        _check_sites(sites, split)
        how = Aggregation(aggregation, lead, early_stopping) if isinstance(aggregation, str) else aggregation
        how.check_parties(tuple(sites))
        matched = None if align is None else Alignment(align, duplicates)
        if matched is not None:
            matched.check_split(split, id, how.mode)
        wanted = declarations(columns, tuple(sites), split)
        sources = {
            party: _open_site_source(spec, party, wanted[party], split, id=id, align=matched)
            for party, spec in sites.items()
        }
        held = {party: source.columns for party, source in sources.items()}
        schemas = {party: wanted[party].declared_schema(source.columns) for party, source in sources.items()}
        names = same_columns(held) if split == "rows" else all_columns(held, columns if order is None else order)
        rules = policies_by_site(policy, tuple(sites))
        return cls.from_site_data(
            {p: (SiteData(p, source, schemas[p]), rules[p]) for p, source in sources.items()},
            columns=names,
            split=split,
            schema=one_schema(schemas) if split == "rows" else joint_schema(schemas, names),
            run=run,
            seed=seed,
            wire=wire,
            aggregation=how,
            align=matched,
        )

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return self.engine.parties

    @property
    def site_data(self) -> dict[PartyId, SiteData]:
        """The sites' rows, if they are in this process."""
        return self.local_sites.data_for_run(self.run_id)

    @property
    def ids(self) -> list[Any] | None:
        """The ids that match the rows of a column split in this process, in the order of labels; else None."""
        held = self.site_data.values() if self.split == "columns" else ()
        found = next((own_data.source.ids() for own_data in held), None)
        return None if found is None else found.tolist()

    @property
    def column_places(self) -> dict[PartyId, Ints]:
        """Which of the study's columns each site holds, in the site's order."""
        return {
            p: np.array([self.columns.index(name) for name in own], np.int64)
            for p, own in self._columns_by_party.items()
        }

    @property
    def declared_schemas(self) -> dict[PartyId, Schema]:
        """The study's declaration of each site's columns; empty if all are plain numbers."""
        if all(column == Column() for column in self.schema.values()):
            return {}
        own = {p: set(names) for p, names in self._columns_by_party.items()}
        return {
            p: {n: c for n, c in self.schema.items() if own[p].issuperset(c.encoded_column_names(n))}
            for p in self.parties
        }

    @property
    def run_id(self) -> str:
        return self._coordinator.run

    def widen_padding(self, padding: Padding) -> None:
        """From now on, pad messages to at least this length if the coordinator must not see when a run converged."""
        self._aggregator.widen_padding(padding)

    def run(
        self, protocol: Protocol[T], *, quorum: Quorum = ALL_PARTIES, missing: str = "refuse", asks_multiple: int = 1
    ) -> tuple[T, list[Absence]]:
        """Run a protocol with the rule `missing` for missing values; return its result and the absent sites."""
        self._open_journals()
        self._refuse_other_rows()
        coordinator = self._coordinator
        coordinator.quorum = quorum
        try:
            if not self._is_aligned and self.align is not None:
                coordinator.drive(
                    self._aggregator.wrap(align_rows(self.parties, self.align.duplicates), ALL_PARTIES), self.watch
                )
                self._is_aligned = True
            for own_data in self.site_data.values():
                own_data.survey_for(missing)  # so that users see a clear message about bad rows, not a site's refusal
            before = len(coordinator.absences)
            padded = self._aggregator.pad(protocol, asks_multiple)
            result = coordinator.drive(self._aggregator.wrap(padded, quorum), self.watch)
        except QuorumLost as lost:
            raise self.local_sites.explain_lost_quorum(lost) from None
        return result, coordinator.absences[before:]

    def traffic(self) -> dict[PartyId, dict[str, int]]:
        """Return the messages and bytes that left each site of this process or cluster, from their ledgers."""
        carrier = self._coordinator.engine
        carrier = carrier.engine if isinstance(carrier, ObservedEngine) else carrier
        ledgers = carrier.ledgers() if isinstance(carrier, KeepsLedgers) else self.local_sites.ledgers()
        return {p: {"messages": len(own), "bytes": sum(e.size for e in own)} for p, own in ledgers.items()}

    def received_bytes(self) -> dict[PartyId, int]:
        """Return the bytes of answers that reached the coordinator, by site."""
        return dict(self._coordinator.received_bytes)

    def use_engine(self, engine: Engine, *, run: str | None = None) -> None:
        """Use another engine from now on, under another run name if one is given."""
        if self._adder is None:
            self._coordinator.engine = engine
        else:
            self._adder.engine = engine
        self._coordinator.run = run or self._coordinator.run

    @property
    def group_keys(self) -> str | None:
        """The keys under which the sites prove their answers to each other now, in a verified run."""
        return self._aggregator.group_keys

    def record_steps(self, recorder: StepRecorder) -> None:
        """Have a recorder note what becomes of each step."""
        self._coordinator.recorder = recorder

    def replay_steps(self, settler: StepSettler, run: str) -> None:
        """Replay a run: the settler says what became of each step, and no site is asked."""
        self._coordinator.settler, self._coordinator.run = settler, run

    def close(self) -> None:
        """Close the journals."""
        for journal in (self._coordinator.journal, self._adder.journal if self._adder else None):
            if journal:
                journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_journals(self) -> None:
        if self.folder is None or self._coordinator.journal is not None:
            return
        self._coordinator.journal = Journal(self.folder / "journal")
        if self._adder is not None:
            self._adder.journal = Journal(self.folder / "coordinator" / "journal")

    def _refuse_other_rows(self) -> None:
        """Refuse to continue a journal with other rows than it began with, as far as this process can see them."""
        journal = self._coordinator.journal
        if journal is None or not self.local_sites:
            return
        digest = self.local_sites.digest_rows()
        if (before := journal.recall(ROWS_RECORD, 0)) is None:
            journal.write(ROWS_RECORD, 0, digest)
        elif before != digest:
            raise JournalError(
                f"the sites or their rows have changed since {self.folder} was created; use another folder"
            )


def _to_run_record(run: str | Path | RunRecord | None) -> RunRecord | None:
    """Return the run record of a folder; it is not durable, because the journal restores what a power cut destroys."""
    return run if run is None or isinstance(run, RunRecord) else RunRecord(Path(run), durable=False)


def _check_sites(sites: Any, split: str) -> None:
    if not isinstance(sites, Mapping):
        raise StudyError(
            f"the parameter 'sites' is a {type(sites).__name__}; give a mapping from names to data, as in "
            f"{{'north': ..., 'south': ...}}"
        )
    if not sites:
        raise StudyError("a federation needs at least one site")
    for party in sites:
        if (
            not isinstance(party, str)
            or not SITE_NAME_PATTERN.fullmatch(party)
            or len(party.encode()) > MAX_SITE_NAME_BYTES
        ):
            raise StudyError(
                f"{party!r} is not a valid site name; use letters, digits, '.', '-', '_', and spaces between them"
            )
    if split not in ("rows", "columns"):
        raise StudyError(f"the parameter 'split' is '{split}'; choose 'rows' or 'columns'")


def _open_site_source(
    spec: Any,
    party: PartyId,
    wanted: WantedColumns,
    split: Split,
    *,
    id: str | None,  # noqa: A002
    align: Alignment | None,
) -> Source:
    names = wanted.names
    if names is None and split == "columns" and isinstance(spec, np.ndarray) and spec.ndim == 2:
        names = tuple(f"{party}.x{i}" for i in range(spec.shape[1]))  # otherwise every site's first column would be x0
    repeats = align is not None  # which may be refused, too, but after spaces are gone
    source = open_source(spec, columns=names, id=id, site=party, schema=wanted.schema, repeats=repeats)
    return sort_by_id(source) if split == "columns" and id is not None and align is None else source


def parse_bounds(bounds: Any, columns: int) -> tuple[Floats, Floats] | None:
    """Return public bounds as (low, high) per column, from one pair for all columns or one pair per column."""
    if bounds is None:
        return None
    try:
        pairs = np.broadcast_to(np.asarray(bounds, np.float64), (columns, 2))
        sound = bool((np.abs(pairs) <= MAX_MAGNITUDE).all() and (pairs[:, 0] <= pairs[:, 1]).all())
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise StudyError(
            "bounds must be one pair (low, high) or one pair per column; each limit must be finite and below 2^127, "
            "and low <= high"
        )
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
