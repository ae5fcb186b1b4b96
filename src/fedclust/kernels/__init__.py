"""The arithmetic of a sweep over a site's rows, compiled or in NumPy, with the same bits either way.

`coder`, the training of autoencoders, stands beside it: alike but for rounding.
"""

from fedclust.kernels._backend import backend, use_backend
from fedclust.kernels._threads import set_threads, threads
from fedclust.kernels.column_blocks import pack
from fedclust.kernels.exact_sums import Sums

__all__ = ["Sums", "backend", "pack", "set_threads", "threads", "use_backend"]
