"""What other processors and libraries do to numbers, as far as this machine can act as one: variables of a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy._core._multiarray_umath as compiled

TESTS = Path(__file__).parents[1]
TRANSCRIPTS = Path(__file__).with_name("transcripts.py")


def numpy_features():
    """The instruction sets that NumPy has loops for, and that this processor has."""
    return [name for name in compiled.__cpu_dispatch__ if compiled.__cpu_features__.get(name)]


SETTINGS = {  # by what they change
    "NumPy without AVX2, FMA and AVX-512": {"NPY_DISABLE_CPU_FEATURES": " ".join(numpy_features())},
    "BLAS of a processor without AVX": {"OPENBLAS_CORETYPE": "Prescott"},
    "C library without AVX and FMA": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-FMA,-FMA4"},
    "BLAS of a processor with AVX2": {"OPENBLAS_CORETYPE": "Haswell"},
    "BLAS with two threads": {"OPENBLAS_NUM_THREADS": "2"},
}
OLD_PROCESSOR = {name: value for changed in [*SETTINGS.values()][:3] for name, value in changed.items()}


def run(command, variables, file):
    """The transcripts that another process writes."""
    words = [*command, str(TRANSCRIPTS), str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    subprocess.run(words, env=environment, check=True, cwd=TESTS, capture_output=True)
    return json.loads(file.read_text())


def run_here(variables, file):
    return run([sys.executable], variables, file)


def differences(one, other):
    """Equal questions, all questions, equal results, all results, and the first question of a scenario that differs."""
    same = asked = results = runs = 0
    first = {}
    for name in one:
        if name not in other or "missing" in one[name] or "missing" in other[name]:
            continue
        here, there = one[name]["questions"], other[name]["questions"]
        equal = [i < len(there) and there[i] == question for i, question in enumerate(here)]
        asked, same, runs = asked + len(here), same + sum(equal), runs + 1
        results += one[name]["result"] == other[name]["result"]
        if not all(equal) or len(here) != len(there):
            first[name] = here[equal.index(False)][0] if False in equal else "more questions"
        elif one[name]["result"] != other[name]["result"]:
            first[name] = "the result"
    return same, asked, results, runs, first
