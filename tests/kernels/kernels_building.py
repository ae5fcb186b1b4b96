"""Extension modules compiled anew, in other ways than the installed ones."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(name, folder, **environment):
    """An extension module compiled into a folder of its own."""
    command = [sys.executable, "-W", "ignore", "setup.py", "build_ext", "--build-lib", folder, "--build-temp", folder]
    subprocess.run(list(map(str, command)), cwd=ROOT, env=os.environ | environment, check=True, capture_output=True)
    (path,) = Path(folder).glob(f"fedclust/kernels/{name}.*")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen(module):
    """One instruction set after the other of those that were compiled in and that this machine has."""
    tried = []
    for name in ("avx512", "avx2", "base"):
        try:
            module.choose(name)
        except ValueError:
            continue
        tried.append(name)
        yield name
    assert "base" in tried
