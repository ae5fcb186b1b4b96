"""Which arithmetic is in use, and what happens without a compiler."""

import subprocess
import sys

import pytest

from fedclust import kernels

WITHOUT_COMPILED = """
import sys, warnings
sys.modules["fedclust.kernels._sweeps"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from fedclust import kernels
    from fedclust.kernels import fuzzy_sweep, hard_sweep
print(kernels.backend(), len(caught), caught[0].message)
"""


def test_a_missing_compiled_module_is_said_once_and_replaced():
    done = subprocess.run([sys.executable, "-c", WITHOUT_COMPILED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "numpy 1 compiled kernels are missing, so NumPy is used, which gives the same results but is slower; "
        "to get the kernels, install a C compiler and reinstall fedclust"
    )


def test_a_backend_is_used_inside_its_block_only():
    before = kernels.backend()
    with kernels.use_backend("numpy"):
        assert kernels.backend() == "numpy"
    assert kernels.backend() == before


def test_the_backend_comes_back_after_an_error():
    before = kernels.backend()
    with pytest.raises(KeyError), kernels.use_backend("numpy"):
        raise KeyError
    assert kernels.backend() == before


def test_no_threads_at_all_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        kernels.set_threads(0)


def test_the_environment_sets_the_number_of_threads():
    code = "from fedclust import kernels; print(kernels.threads())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"FEDCLUST_THREADS": "5"}
    )
    assert done.stdout.strip() == "5"
