"""Unlearning: returns the model without some rows or sites, and a certificate that says how it was made.

>>> import numpy as np, fedclust as fc
>>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
>>> fed = fc.Federation.local({"a": X[::3], "b": X[1::3], "c": X[2::3]})
>>> model = fc.KMeans(3).fit(fed)
>>> without, certificate = fc.unlearn(model, fed, site="b", rows=[0, 7])
>>> certificate.removed, certificate.exact, certificate.fits(model, without)
('2 rows of site b', True, True)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedclust.app.agreement import displacement
from fedclust.app.indices import model_view
from fedclust.core.atomic_files import write_file
from fedclust.core.counted_nouns import count_noun
from fedclust.core.effects import Protocol
from fedclust.core.errors import DataError, QuorumLost, StudyError
from fedclust.core.types import Array, Ints, PartyId
from fedclust.federation.derived_federations import federation_with_data
from fedclust.federation.federation import Federation
from fedclust.models.assignment import CentersModel, model_with_centers
from fedclust.models.base import FederatedEstimator, Model
from fedclust.models.input_checks import limit_quorum
from fedclust.questions import partition_changes
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources.source_interface import Block, DerivedSource, Ids, PackedRows, Source

__all__ = ["Certificate", "unlearn"]

UNLEARNING_WAYS = ("replay", "redraw", "quick")
MIN_REMOVED_SITES = 3  # with masked sums, cohorts must differ by at least this many sites


@dataclass(frozen=True)
class Certificate:
    """What was removed and how: fingerprints of both models and what was recomputed, but no sums and no rows."""

    method: str
    removed: str
    how: str
    sites: int  # that are left
    before: str
    after: str
    recomputed: str
    exact: bool  # bit for bit the model trained without what was removed, from the same start
    start: str  # "independent of the removed rows", or not
    same_partition: bool | None  # whether the remaining rows are split as before; None: unknown
    matches_replay: bool | None = None  # whether they are split as by a replay; None: not checked
    center_distance: float | None = None  # how far the centres are from those of a replay

    def fits(self, before: FederatedEstimator, after: FederatedEstimator) -> bool:
        """Whether the certificate is about exactly these models."""
        return (model_fingerprint(before), model_fingerprint(after)) == (self.before, self.after)

    def save(self, path: str | Path) -> Path:
        """Write the certificate as JSON."""
        path = Path(path)
        document = {"format": "fedclust-certificate", "version": 1, **asdict(self)}
        write_file(path, json.dumps(document, indent=1, allow_nan=False) + "\n", one_writer=False, mode=0o666)
        return path


def model_fingerprint(model: FederatedEstimator) -> str:
    """Return the SHA-256 of a model's saved document."""
    return hashlib.sha256(json.dumps(model.to_document(), sort_keys=True).encode()).hexdigest()


def unlearn(
    model: FederatedEstimator,
    fed: Federation,
    *,
    site: PartyId | Sequence[PartyId] | None = None,
    rows: Sequence[int] | Sequence[bool] | None = None,
    how: str = "replay",
    check: bool = False,
) -> tuple[FederatedEstimator, Certificate]:
    """Return a model without some rows of a site, or without whole sites, and a certificate. `model` is not changed.

    `fed` is the federation that the model was fitted on, in this process. `rows` are row numbers in the order of the
    site's data, counted from 0, or a mask with True or False for each row. Without `site`, `fed` is the remaining data:
    a federation whose sites have deleted the rows themselves.

    `how` is "replay" (fit again from the recorded initial centres), "redraw" (draw the initial centres again too) or
    "quick" (start from the current centres, or for MUFC keep the sites' selected rows that still exist). `check`
    compares a quick result with a replay.
    """
    _check_request(model, fed, site, rows, how)
    model = model_with_centers(model, "unlearning")
    gone = () if site is None else (site,) if isinstance(site, str) else tuple(dict.fromkeys(site))
    places = None if rows is None else _row_places(_local_servers(fed, gone)[gone[0]].site_data, rows)
    left = fed if site is None else federation_without(fed, gone, places)
    made = _fit_without(model, left, how)
    replayed = _fit_without(model, left, "replay") if check and how == "quick" else None
    return made, Certificate(
        method=type(model).__name__,
        removed=_describe_removed(gone, places),
        how=how,
        sites=len(left.parties),
        before=model_fingerprint(model),
        after=model_fingerprint(made),
        recomputed=_describe_recomputed(made, left, how),
        exact=how != "quick",
        start=_describe_start(model, how),
        same_partition=_is_same_partition(model, made, left),
        matches_replay=None if replayed is None else _is_same_partition(made, replayed, left),
        center_distance=None if replayed is None else displacement(made.cluster_centers_, replayed.cluster_centers_),
    )


def federation_without(fed: Federation, gone: Sequence[PartyId], places: Ints | None) -> Federation:
    """Return a federation of this process without some rows of a site, or without some sites."""
    site_servers = _local_servers(fed, gone)
    site_data = {}
    for party, server in site_servers.items():
        if party not in gone:
            site_data[party] = server.site_data, server.gate.policy
        elif places is not None:
            source = _source_without(server.site_data.source, places)
            site_data[party] = SiteData(party, source, server.site_data.schema), server.gate.policy
    if not site_data:
        raise StudyError("no rows would be left; remove fewer sites")
    left = federation_with_data(fed, site_data)
    for party, server in left.local_sites.items():
        server.memory[left.run_id] = dict(site_servers[party].memory.get(fed.run_id, {}))  # what the site itself stored
        server.gate.ledger = site_servers[party].gate.ledger  # and the cohorts it answered for
    return left


def _local_servers(fed: Federation, gone: Sequence[PartyId]) -> Mapping[PartyId, SiteServer]:
    """Return the site servers of this process; refuse if a site to remove is not among them."""
    site_servers = fed.local_sites
    if not site_servers:
        raise StudyError(
            "the sites are not in this process; let the sites delete the rows, and leave out `site` and `rows`"
        )
    if unknown := [name for name in gone if name not in site_servers]:
        raise StudyError(f"there is no site '{unknown[0]}'; choose one of {', '.join(site_servers)}")
    return site_servers


@dataclass(frozen=True, eq=False)
class SourceWithoutRows(DerivedSource):
    """A source without some of its rows."""

    gone: Ints

    def blocks(self) -> Iterator[Block]:
        at = 0
        for block in self.source.blocks():
            own = self.gone[(self.gone >= at) & (self.gone < at + block.shape[1])] - at
            at += block.shape[1]
            left = np.delete(block, own, axis=1) if len(own) else block
            if left.shape[1]:
                yield np.ascontiguousarray(left)

    def ids(self) -> Ids | None:
        names = self.source.ids()
        return None if names is None else np.delete(names, self.gone)


def _source_without(source: Source, gone: Ints) -> Source:
    lessened = SourceWithoutRows(source, gone)
    if not source.resident:
        return lessened
    held = tuple(lessened.blocks()) or (np.empty((len(source.columns), 0)),)
    return PackedRows(source.site, source.columns, held, lessened.ids())


def _row_places(site_data: SiteData, rows: Any) -> Ints:
    """Return the row numbers without repeats, from row numbers or from a mask."""
    there = sum(block.shape[1] for block in site_data.source.blocks())
    asked = _parse_rows(rows)
    if asked.dtype.kind == "b":  # as numbers, True and False would be the rows 1 and 0
        if asked.shape != (there,):
            raise StudyError(
                f"`rows` is a mask of {count_noun(asked.size, 'value')}, but {site_data.party} has "
                f"{count_noun(there, 'row')}; "
                "give one value for each row"
            )
        asked = np.flatnonzero(asked)
    places = np.unique(asked.astype(np.int64))
    if not len(places) or places[0] < 0 or places[-1] >= there:
        raise DataError(f"{site_data.party} has rows 0 to {there - 1}; give row numbers in this range")
    if len(places) == there:
        raise StudyError(f"these are all rows of {site_data.party}; leave out `rows` to remove the whole site")
    return places


def _parse_rows(rows: Any) -> Array:
    """Return whole numbers or a mask; a single number becomes a list of one."""
    try:
        asked = np.atleast_1d(np.asarray(rows))
    except ValueError:  # lists of unequal lengths
        asked = np.empty(1, object)
    mixed = asked.dtype.kind != "b" and isinstance(rows, list | tuple) and any(isinstance(row, bool) for row in rows)
    if (asked.size and asked.dtype.kind not in "iub") or mixed or np.ma.is_masked(rows):
        raise StudyError("`rows` must be row numbers counted from 0, or a mask with True or False for each row")
    return asked if asked.dtype.kind == "b" else asked.ravel()


def _fit_without(model: CentersModel, left: Federation, how: str) -> CentersModel:
    """Fit the model without what was removed."""
    given = model.get_params(deep=False)
    made = type(model)(**{**given, "random_state": model.seed_})
    if model.takes_initial_centers and how != "redraw":
        made.set_params(init=model.initial_centers_ if how == "replay" else model.cluster_centers_)
    if "quorum" in given:
        made.set_params(quorum=limit_quorum(given["quorum"], len(left.parties)))
    made.keep_picks = model.keeps_site_picks and how == "quick"
    made.fit(left)
    if "quorum" in given:
        made.set_params(quorum=given["quorum"])
    if model.takes_initial_centers and how != "redraw":
        made.set_params(init=given["init"])
        made.initial_centers_ = model.initial_centers_  # the recorded ones, for a later removal
    return made


def _is_same_partition(one: CentersModel, other: CentersModel, fed: Federation) -> bool | None:
    """Whether two models split the rows of a federation in the same way; None if a site may not count so few rows."""

    def script() -> Protocol[bool]:
        first, centers = yield from model_view(one, fed)
        second, others = yield from model_view(other, fed)
        return (
            yield from partition_changes.is_same_partition(
                partition_changes.ModelPair(first, second, centers, others, one.missing)
            )
        )

    try:
        return fed.run(script(), missing=one.missing)[0]
    except QuorumLost:
        return None


def _check_request(model: FederatedEstimator, fed: Federation, site: Any, rows: Any, how: str) -> None:
    check_is_fitted(model)
    if how not in UNLEARNING_WAYS:
        raise StudyError(f"the parameter 'how' is '{how}'; choose one of {', '.join(UNLEARNING_WAYS)}")
    if fed.split != "rows":
        raise StudyError(
            "rows cannot be removed from a model of a column split, because every site knows the weights of all rows; "
            "fit a new model without the rows"
        )
    if rows is not None and not isinstance(site, str):
        raise StudyError("`rows` must belong to a single site; pass its name as `site`")
    if site is not None and not len(site):
        raise StudyError(
            "`site` is empty; name at least one site, or leave `site` out if the sites deleted the rows themselves"
        )
    if model.saw_batches:
        raise StudyError(
            "a model fitted in several batches has no record of its rows; fit a new model without the removed rows"
        )
    if how == "quick" and not (model.takes_initial_centers or model.keeps_site_picks):
        raise StudyError(f"how='quick' is not available for {type(model).__name__}; use how='replay'")
    whole = 0 if site is None or isinstance(site, str) else len(set(site))
    if fed.aggregation.mode != "plain" and whole < MIN_REMOVED_SITES:
        raise StudyError(
            "comparing the sums before and after the removal would reveal the removed rows, despite the masks; "
            "remove at least three sites at once, or set aggregation to 'plain'"
        )


def _describe_removed(gone: Sequence[PartyId], places: Ints | None) -> str:
    if not gone:
        return "the rows that the sites deleted"
    if places is not None:
        return f"{len(places)} row{'s' if len(places) > 1 else ''} of site {gone[0]}"
    return f"site{'s' if len(gone) > 1 else ''} {', '.join(gone)}"


def _describe_recomputed(made: Model, left: Federation, how: str) -> str:
    sites = f"{len(left.parties)} site{'s' if len(left.parties) > 1 else ''}"
    if made.keeps_site_picks:
        picks = (
            f"{made.sites_that_picked} of {sites} selected their rows again, and all counted their rows again"
            if how == "quick"
            else f"all rows of {sites}"
        )
        return f"{picks}; the coordinator's clusters were fitted again"
    begun = {
        "replay": "from the recorded initial centres",
        "redraw": "from new initial centres",
        "quick": "from the current centres",
    }
    if not made.takes_initial_centers:
        return f"the whole fit, over {sites}"
    return f"{made.n_iter_} round{'s' if made.n_iter_ > 1 else ''} over {sites} {begun[how]}"


def _describe_start(model: FederatedEstimator, how: str) -> str:
    """Say whether the start of the run may contain a trace of what was removed."""
    given = model.get_params(deep=False)
    public = model.takes_initial_centers and (
        not isinstance(given["init"], str) or (given["init"] == "box" and given["bounds"] is not None)
    )
    if how == "quick":
        kept = "the selected rows that remain" if model.keeps_site_picks else "the centres fitted before the removal"
        return f"from {kept}"
    if public or how == "redraw" or not model.takes_initial_centers:
        return "independent of the removed rows"
    return "recorded, and drawn before the removal; how='redraw' draws new initial centres"
