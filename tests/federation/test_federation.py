"""What a federation is made of: named sites, each under a policy that someone chose."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.site.policy import PROFILES, Policy

X = np.arange(40.0).reshape(20, 2)
SITES = {"cleveland": X[:8], "hungary": X[8:]}


def policies(fed):
    return {party: desk.gate.policy for party, desk in fed.local_sites.items()}


def test_a_policy_for_all_and_one_for_each():
    assert set(policies(fc.Federation.local(SITES, policy="nhs")).values()) == {PROFILES["nhs"]}
    own = Policy("own", min_rows=3)
    found = policies(fc.Federation.local(SITES, policy={"hungary": own, "cleveland": "none"}))
    assert found == {"cleveland": PROFILES["none"], "hungary": own}


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"clevland": "nhs", "hungary": "nhs"}, "names 'clevland', which is not a site; did you mean 'cleveland'?"),
        ({"cleveland": "nhs", "hungary": "nhs", "": "nhs"}, "which is not a site; remove it"),
        ({"cleveland": "nhs"}, "'policy' does not name site 'hungary'"),
        ({}, "'policy' does not name site 'cleveland'"),
        (None, "must be a name, a Policy, or a mapping"),
        ({"cleveland": "nhs", "hungary": "nsh"}, "there is no policy 'nsh'"),
    ],
)
def test_no_site_is_left_without_its_policy_by_mistake(policy, sentence):
    with pytest.raises(fc.StudyError) as refused:
        fc.Federation.local(SITES, policy=policy)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("sites", [[X, X], X, (X,), None])
def test_sites_without_names_are_refused_without_their_rows(sites):
    with pytest.raises(fc.StudyError, match="give a mapping from names to data") as refused:
        fc.Federation.local(sites)
    assert "39" not in str(refused.value)
