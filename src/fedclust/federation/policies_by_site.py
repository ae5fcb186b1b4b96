"""Reads the parameter `policy` of a federation in this process: one policy for all sites, or one for each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.site.policy import Policy, find_policy


def policies_by_site(policy: Any, sites: Sequence[PartyId]) -> dict[PartyId, Policy]:
    """Return the policy of each site; refuse a mapping that omits a site."""
    if isinstance(policy, (str, Policy)):
        return {party: find_policy(policy) for party in sites}
    if not isinstance(policy, Mapping):
        raise StudyError("policy must be a name, a Policy, or a mapping from sites to these")
    for party in policy:
        if party not in sites:
            near = [f"did you mean '{name}'?" for name in difflib.get_close_matches(str(party), sites, n=1)]
            raise StudyError(
                f"the parameter 'policy' names '{party}', which is not a site; {near[0] if near else 'remove it'}"
            )
    for party in sites:
        if party not in policy:
            raise StudyError(
                f"the parameter 'policy' does not name site '{party}'; name every site, and use 'none' for a site "
                "without rules"
            )
    return {party: find_policy(policy[party]) for party in sites}
