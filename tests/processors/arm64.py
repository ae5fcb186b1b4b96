"""A whole Python for ARM64, and fedclust's kernels compiled for it, run by qemu's emulator of one process.

Python comes from Debian's packages, unpacked and not installed; NumPy and the rest from the package index, in the
versions of constraints.txt.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from processors import settings

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "processors" / "arm64"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SUFFIX = ".cpython-311-aarch64-linux-gnu.so"
DEBIAN = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libpython3.11-dev", "libc6", "libgcc-s1"),
    *("libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1"),
)
WHEELS = (
    *("numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "cloudpickle", "narwhals", "pyarrow", "duckdb"),
    *("cryptography", "cffi", "pycparser", "pandas", "python-dateutil", "opendp", "deprecated", "wrapt", "attrs"),
    *("typing_extensions", "dp-accounting", "absl-py", "dm-tree", "mpmath"),
)
EXTENSIONS = {
    "_sweeps": ("_sweeps", "_base", "_avx2", "_avx512"),
    "_art": ("_art", "_art_base", "_art_avx2", "_art_avx512"),
    "_groups": ("_groups",),
    "_coder": ("_coder", "_coder_base", "_coder_avx2", "_coder_avx512"),
}
FLAGS = ("-shared", "-fPIC", "-std=c99", "-O3", "-ffp-contract=off", "-fno-fast-math")


def is_possible():
    """Whether the compiler, the emulator and apt are here."""
    return all(shutil.which(one) for one in (COMPILER, EMULATOR, "apt-get", "dpkg-deb"))


def run(file):
    """The transcripts that ARM64 writes."""
    root, libraries = _unpack_python(), _unpack_wheels()
    include = root / "usr" / "include"
    package = copy_package(BUILD, [COMPILER, f"-I{include / 'python3.11'}", f"-I{include}"], SUFFIX)
    variables = {
        "QEMU_LD_PREFIX": str(root),
        "PYTHONPATH": os.pathsep.join([str(package), str(libraries)]),
        "PYTHONPYCACHEPREFIX": str(BUILD / "bytecode"),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return settings.run([EMULATOR, str(root / "usr" / "bin" / "python3.11")], variables, file)


def copy_package(folder, compiler, suffix):
    """A folder to import fedclust from, with kernels by this compiler, or without."""
    shutil.rmtree(folder / "package", ignore_errors=True)
    kernels = folder / "package" / "fedclust" / "kernels"
    shutil.copytree(ROOT / "src" / "fedclust", kernels.parent, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name, sources in EXTENSIONS.items() if compiler else ():
        files = [str(kernels / f"{source}.c") for source in sources]
        _call(*compiler, *FLAGS, *files, "-o", str(kernels / f"{name}{suffix}"), "-lm")
    return folder / "package"


def _unpack_python():
    """Debian's packages, in a folder; this machine's own lists of packages stay as they are."""
    root, state = BUILD / "root", BUILD / "apt"
    if root.exists():
        return root
    shutil.rmtree(state, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "packages"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State::Lists": str(state / "lists"),
        "Dir::State::status": str(state / "status"),
        "Dir::Cache": str(state / "cache"),
    }
    apt = ["apt-get", "-qq", *(word for pair in options.items() for word in ("-o", "=".join(pair)))]
    _call(*apt, "update")
    _call(*apt, "download", *DEBIAN, cwd=state / "packages")
    for package in sorted((state / "packages").glob("*.deb")):
        _call("dpkg-deb", "-x", str(package), str(state / "root"))
    return (state / "root").rename(root)


def _unpack_wheels():
    """The libraries that fedclust needs, for ARM64."""
    folder, part = BUILD / "libraries", BUILD / "libraries.part"
    if folder.exists():
        return folder
    shutil.rmtree(part, ignore_errors=True)
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    versions = {name.lower(): version for name, version in pinned}
    wanted = [f"{name}=={versions[name]}" for name in WHEELS]
    where = [f"--platform=manylinux{one}_aarch64" for one in ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28")]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", f"--target={part}"]
    _call(*pip, "--python-version=3.11", *where, *wanted)
    return part.rename(folder)


def _call(*words, cwd=None):
    subprocess.run(words, check=True, cwd=cwd, capture_output=True, text=True)
