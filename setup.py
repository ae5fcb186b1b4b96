"""Build the C kernels; without a compiler the installation continues, and NumPy computes the same results more slowly.

A build from source targets this machine. With FEDCLUST_PORTABLE=1 the kernels contain several instruction sets and
choose one at import.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

KERNELS = Path("src/fedclust/kernels")
EXACT = [
    "-std=c99",
    "-O3",
    "-ffp-contract=off",
    "-fno-fast-math",
]  # the same bits on every machine: no fused multiply-add
FUSED = ["-std=c99", "-O3", "-ffp-contract=fast", "-fno-math-errno"]  # twice as fast, for code that is not exact anyway
PORTABLE = bool(os.environ.get("FEDCLUST_PORTABLE"))


def compiled(name: str, *sources: str, flags: list[str] = EXACT) -> Extension:
    """An optional extension module; without it, results are the same and slower."""
    return Extension(
        f"fedclust.kernels.{name}",
        sources=[str(KERNELS / source) for source in sources],
        depends=[str(path) for path in KERNELS.glob("*.h")],
        define_macros=[("FEDCLUST_PORTABLE", "1")] if PORTABLE else [],
        extra_compile_args=["/O2", "/fp:strict"]
        if sys.platform == "win32"
        else flags + ([] if PORTABLE else ["-march=native"]),
        optional=True,
    )


setup(
    ext_modules=[
        compiled("_sweeps", "_sweeps.c", "_base.c", "_avx2.c", "_avx512.c"),
        compiled("_art", "_art.c", "_art_base.c", "_art_avx2.c", "_art_avx512.c"),
        compiled("_groups", "_groups.c"),
        compiled("_coder", "_coder.c", "_coder_base.c", "_coder_avx2.c", "_coder_avx512.c", flags=FUSED),
    ]
)
