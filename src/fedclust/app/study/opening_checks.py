"""Checks a study against its rows, before a file is written or a message sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.app.study.study_parts import Study
from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError, StudyError
from fedclust.federation.federation import Federation
from fedclust.federation.run_record import RunRecord
from fedclust.models import FederatedEstimator
from fedclust.site.site_data import SiteData


@dataclass(frozen=True)
class OpenStudy:
    """A study whose sites are open, whose rows were read once, and whose method accepts them."""

    study: Study
    fed: Federation
    estimator: FederatedEstimator

    def row_digests(self) -> dict[str, str]:
        """Return a digest for each site that changes if its rows change."""
        return {
            site.name: _digest_rows(self.fed.local_sites[site.name].site_data, site.source) for site in self.study.sites
        }


def open_study(study: Study, *, record: RunRecord | None = None, fresh: bool = True) -> OpenStudy:
    """Open the sites and read every row once; refuse bad rows, and a study that does not fit them.

    `record` is where the run will be recorded; nothing is written yet. A `fresh` study needs at least as many rows as
    clusters; a later batch may be smaller.
    """
    fed = study.open_federation(record)
    needs_all = study.cluster.options.get("quorum", "all") == "all"
    if needs_all:
        _check_policies(study, fed)
    estimator = study.make_estimator(fed.columns)
    estimator.protocol(fed).close()  # checks the parameters; no step is taken
    start = study.cluster.options.get("init")
    if isinstance(start, list) and len(start[0]) != len(fed.columns):
        raise StudyError(
            f"the centres of init in [cluster] have {count_noun(len(start[0]), 'number')} each, but "
            f"there are {len(fed.columns)} "
            "columns; "
            "give one number for each column"
        )
    missing = study.missing if study.align is None else "partial"  # rows that no other site has may lack values
    rows = [site.site_data.survey_for(missing).rows for site in fed.local_sites.values()]
    if study.id is not None and study.split == "rows":
        for site in fed.local_sites.values():
            site.site_data.source.ids()  # refuses ids that repeat
    in_all = sum(rows) if study.split == "rows" else min(rows)
    if not in_all:
        raise DataError("every row has missing values and was left out; remove the columns with most missing values")
    if fresh and in_all < study.cluster.max_clusters:
        raise DataError(
            f"the sites have {count_noun(in_all, 'row')} in total, fewer than k = {study.cluster.max_clusters}; "
            "ask for fewer clusters"
        )
    if needs_all:
        _check_row_floors(fed, missing)
    return OpenStudy(study, fed, estimator)


def _check_policies(study: Study, fed: Federation) -> None:
    """Refuse what a site's policy would refuse in any case, if the run needs all sites."""
    for party, server in fed.local_sites.items():
        policy = server.gate.policy
        if len(fed.parties) < policy.min_parties:
            raise StudyError(
                f"the policy '{policy.name}' of site '{party}' requires sums over at least "
                f"{count_noun(policy.min_parties, 'site')}, "
                f"but the study has {len(fed.parties)}; add sites, or agree on another policy"
            )
        values = policy.max_ratio * len(server.site_data.source.columns)
        plain = study.split == "columns" and study.aggregation.mode == "plain"
        if plain and policy.max_ratio and study.cluster.max_clusters > values:
            raise StudyError(
                f"the policy '{policy.name}' of site '{party}' does not let the distances of all rows leave unmasked, "
                'but a column split with plain aggregation sends them; set aggregation = "secure" in [privacy]'
            )


def _check_row_floors(fed: Federation, missing: str) -> None:
    """Refuse a site whose own policy excludes it, if the run needs all sites."""
    for party, server in fed.local_sites.items():
        policy = server.gate.policy
        if server.site_data.survey_for(missing).rows < policy.min_rows:
            raise StudyError(
                f"site '{party}' has fewer than the {policy.min_rows} rows that its policy '{policy.name}' requires; "
                "leave this site out, or set quorum in [cluster]"
            )


def _digest_rows(own_data: SiteData, source: Any) -> str:
    """Digest the bytes of a file; for any other source, the number of rows and each column's extremes."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    found = own_data.survey_for("partial")
    digest = hashlib.sha256(f"{found.rows} {own_data.source.columns} {found.gaps.tolist()}".encode())
    digest.update(np.concatenate([found.lo, found.hi]).tobytes())
    return digest.hexdigest()
