"""Runs scripts as a new interpreter would, but in forks of a process that has imported fedclust: they start fast."""

import contextlib
import multiprocessing
import os
import runpy
import warnings
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext

CONTEXT: ForkServerContext = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["fresh_process", "fedclust.models.methods", "fedclust.cli.main", "fedclust.app.choose_k"]
)


@dataclass(frozen=True)
class Finished:
    """What a script wrote, and 0 if it ended well."""

    returncode: int
    stdout: str
    stderr: str


def run_script(script):
    """Run a script in its own folder, with warnings as errors."""
    out, err = script.with_suffix(".out"), script.with_suffix(".err")
    child = CONTEXT.Process(target=_run, args=(script, out, err))
    child.start()
    child.join()
    return Finished(child.exitcode, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _run(script, out, err):
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(script.parent)
    os.environ["NO_COLOR"] = "1"
    warnings.resetwarnings()
    warnings.simplefilter("error")
    warnings.filterwarnings("default", "compiled kernels are missing", RuntimeWarning)
    with open(1, "w", encoding="utf-8", closefd=False) as stdout, contextlib.redirect_stdout(stdout):
        runpy.run_path(str(script), run_name="__main__")
