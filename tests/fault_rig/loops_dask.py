"""The Dask loop moves site servers to the workers of a small cluster on loopback, which all loops share."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedclust.core.drive import Reply
from fedclust.core.envelope import Call
from fedclust.core.types import PartyId
from fedclust.engines.dask_cluster import DaskEngine, start_local_cluster
from fedclust.site.server import SiteServer


@cache
def _shared_client() -> Any:
    client = start_local_cluster(workers=2)
    atexit.register(client.close)
    return client


class DaskLoop:
    """An engine whose parties run at a cluster; the site servers of this process do not change."""

    def __init__(self, desks: Mapping[PartyId, SiteServer], folder: Path, run: str) -> None:  # noqa: ARG002 all loops have this signature
        self.site_servers = dict(desks)
        self.parties = tuple(desks)
        self._engine = DaskEngine(_shared_client(), desks, seed=next(iter(desks.values())).seed)

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        return self._engine.exchange(calls, timeout=timeout, quorum=quorum)

    def ledgers(self) -> Any:
        return self._engine.ledgers()

    def close(self) -> None:
        """Keep the cluster for the next loop."""
