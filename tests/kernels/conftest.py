"""Every kernel test that takes `backend` runs compiled and in NumPy."""

import pytest

from fedclust import kernels
from fedclust.kernels import _backend


@pytest.fixture(params=["c", "numpy"])
def backend(request):
    if request.param not in _backend.available:
        pytest.skip("no compiled kernels here")
    with kernels.use_backend(request.param):
        yield request.param


@pytest.fixture
def threads():
    before = kernels.threads()
    yield kernels.set_threads
    kernels.set_threads(before)
