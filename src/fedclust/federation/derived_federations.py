"""Federations in this process that are made from an array, or from another federation with other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.core.types import PartyId
from fedclust.federation.federation import Federation
from fedclust.site.policy import Policy
from fedclust.site.site_data import SiteData

SINGLE_SITE: PartyId = "here"


def federation_of_rows(rows: Any, columns: Sequence[str] | None = None) -> Federation:
    """Return a federation of one site that holds these rows."""
    return Federation.local({SINGLE_SITE: rows}, columns=None if columns is None else list(columns))


def federation_with_data(fed: Federation, site_data: Mapping[PartyId, tuple[SiteData, Policy]]) -> Federation:
    """Return a federation like another one, but without a record, and with other rows at its sites."""
    derived = Federation.from_site_data(
        site_data,
        columns=fed.columns,
        split=fed.split,
        schema=fed.schema,
        run=None,
        seed=fed.seed,
        aggregation=fed.aggregation,
        align=fed.align,
    )
    derived.cell_floor = fed.cell_floor
    return derived
