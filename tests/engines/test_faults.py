"""Real processes, killed, stopped, cut off and lying: each fault ends in the right bits or in a refusal with a name."""

import pytest

from fault_rig import faults
from fault_rig.stages import SETUPS

ALWAYS = {
    ("files", "a site is killed (kill -9) during a step and started again"),
    ("files", "a site sends a sum of 1e12"),
}


@pytest.fixture(scope="module")
def expected():
    faults.load_command()
    return faults.expected_model()


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        pytest.param(engine, fault, marks=() if (engine, fault) in ALWAYS else pytest.mark.engines)
        for engine in SETUPS
        for fault in faults.FAULTS
        if faults.fault_applies(engine, fault)
    ],
)
def test_a_fault_ends_in_the_right_bits_or_in_a_refusal_that_names_the_site(engine, fault, expected):
    came = faults.enact_fault(engine, fault, expected)
    assert "same bits" in came or faults.VICTIM in came
