"""Run every study under other settings, compilers and processors, and compare: `make test-processors`.

Prints for each how many questions and results are equal to those of this machine's usual setting. What cannot be
installed here is said and left out; a question that differs ends with exit code 1.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from processors import arm64, settings

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "processors"


def clang_package() -> Path:
    """A copy of the package whose kernels clang compiled."""
    folder = BUILD / "clang"
    include = sysconfig.get_path("include")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return arm64.copy_package(folder, ["clang", "-march=native", f"-I{include}"], suffix)


def main() -> int:
    BUILD.mkdir(parents=True, exist_ok=True)
    usual = settings.run_here({}, BUILD / "usual.json")
    others = {}
    for name, variables in settings.SETTINGS.items():
        others[name] = lambda file, variables=variables: settings.run_here(variables, file)
    if shutil.which("clang"):
        others["kernels compiled by clang"] = lambda file: settings.run_here({"PYTHONPATH": str(clang_package())}, file)
    others["kernels in NumPy"] = lambda file: settings.run_here({"PYTHONPATH": str(without_kernels())}, file)
    if arm64.is_possible():
        others["ARM64, in an emulator"] = arm64.run
    different = 0
    for number, (name, run) in enumerate(others.items()):
        try:
            found = run(BUILD / f"{number}.json")
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{name}: left out: {getattr(error, 'stderr', None) or error}")  # noqa: T201
            continue
        same, asked, results, runs, first = settings.differences(usual, found)
        print(f"{name}: questions {same:,} of {asked:,}, results {results} of {runs}", flush=True)  # noqa: T201
        for scenario, question in first.items():
            print(f"  {scenario}: {question}")  # noqa: T201
        different += len(first)
    return int(different > 0)


def without_kernels() -> Path:
    """A copy of the package that was never compiled."""
    return arm64.copy_package(BUILD / "numpy", None, "")


if __name__ == "__main__":
    sys.exit(main())
