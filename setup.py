"""Builds the C kernels. Without a compiler the install goes on, and the NumPy twin gives the same bits, slower."""

import os
import sys

from setuptools import Extension, setup

EXACT = ["-std=c99", "-O3", "-ffp-contract=off", "-fno-fast-math"]  # the same bits everywhere: no fused multiply-add
NATIVE = [] if os.environ.get("FEDCLUST_PORTABLE") else ["-march=native"]

setup(
    ext_modules=[
        Extension(
            "fedclust.kernels._sweeps",
            sources=["src/fedclust/kernels/_sweeps.c"],
            extra_compile_args=["/O2", "/fp:strict"] if sys.platform == "win32" else EXACT + NATIVE,
            optional=True,
        )
    ]
)
