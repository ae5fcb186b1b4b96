"""Rows that were moved to another process, as a cluster moves them."""

import pickle

import numpy as np

from fedclust.site.sources import open_source


def test_rows_that_a_cluster_put_at_an_odd_address_are_moved_to_where_kernels_read():
    X = np.arange(12.0).reshape(6, 2)
    buffers = []
    data = pickle.dumps(open_source(X, site="a"), protocol=5, buffer_callback=buffers.append)
    odd = [memoryview(bytearray(b"\0" + bytes(buffer.raw())))[1:] for buffer in buffers]
    (block,) = pickle.loads(data, buffers=odd).blocks()
    assert buffers
    assert block.flags.aligned
    assert not block.flags.writeable
    assert np.array_equal(block, X.T)
