"""Write the golden values of today's code: `python -m tests.golden.record`, or `--show CASE` to see what differs."""

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 its BLAS counts too
import threadpoolctl

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from golden import cases  # noqa: E402 tests are no package: their folder is found first

VALUES, RECORDED = HERE / "values.json", HERE / "recorded.json"


def blas_kernels() -> str:
    """The instruction sets that NumPy's and SciPy's BLAS run with, which a variable of the environment may choose."""
    found = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == "openblas"]
    return " ".join(sorted({str(one.get("architecture")) for one in found}))


def fingerprint() -> dict[str, str]:
    """What the last bits of a value that passes through BLAS, LAPACK, libm or torch depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    except OSError:
        flags = []
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "BLAS kernels": blas_kernels(),
        "machine": platform.machine(),
        "flags": " ".join(sorted(flag for flag in flags if flag.startswith(("avx", "fma")))),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "scipy": version("scipy"),
        "scikit-learn": version("sklearn"),
        "torch": version("torch"),
    }


def version(name: str) -> str:
    try:
        return str(__import__(name).__version__)
    except ImportError:
        return "none"


def values() -> dict[str, Any]:
    """All values of this machine's code, in order of their names."""
    found = {name: plain(case.value(), processor=case.processor) for name, case in cases.CASES.items()}
    handlers = {name: plain(own["value"], processor="processor" in own) for name, own in cases.handler_values().items()}
    return dict(sorted({**found, **handlers}.items()))


def plain(value: str, *, processor: bool) -> Any:
    return {"value": value, "processor": True} if processor else value


def document() -> dict[str, Any]:
    return {"processor": fingerprint(), "values": values()}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--to", type=Path, default=VALUES, help="the file to write")
    words.add_argument("--show", metavar="CASE", help="print the digest of each part of one case, and write nothing")
    given = words.parse_args()
    if given.show:
        found = cases.CASES[given.show].found()
        for name, part in found.items() if isinstance(found, dict) else [("all", found)]:
            print(cases.digest(part), name)  # noqa: T201
        return
    lacking = {case.missing for case in cases.CASES.values()} - {None}
    if lacking:
        sys.exit(f"values cannot be recorded here: {'; '.join(sorted(map(str, lacking)))}")
    given.to.write_text(json.dumps(document(), indent=1) + "\n")


if __name__ == "__main__":
    main()
