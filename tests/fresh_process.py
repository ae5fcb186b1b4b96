"""Runs scripts and commands as a new interpreter would, but in forks of a process that has imported fedclust.

A fork starts in a few milliseconds; a new interpreter needs over a second to import what fedclust needs.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import warnings
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["fresh_process", "fedclust.models.methods", "fedclust.cli.main", "fedclust.app.choose_k"]
CONTEXT.set_forkserver_preload(PRELOADED)


class Child:
    """A process with the interface of `subprocess.Popen`, as far as tests use it; it writes to files, not to pipes."""

    def __init__(self, target, *arguments, folder, environment=None):
        self._files = Path(tempfile.mkdtemp(prefix="fedclust-child-"))
        out, err = self._files / "out", self._files / "err"
        given = {**os.environ, "NO_COLOR": "1"} if environment is None else environment
        self._process = CONTEXT.Process(target=_run, args=(target, arguments, (out, err), folder, given))
        self._process.start()

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def kill(self):
        os.kill(self._process.pid, signal.SIGKILL)

    def communicate(self, timeout=None):
        """Wait for the end, and return what was written to stdout and stderr."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            raise TimeoutError(f"no end after {timeout} s")
        return tuple((self._files / name).read_text(encoding="utf-8") for name in ("out", "err"))


def start_script(script):
    """Start a script in its own folder, with warnings as errors."""
    return Child(_run_script, str(script), folder=script.parent)


def start_command(words, folder, environment=None):
    """Start the command `fedclust` in a folder."""
    return Child(_run_command, *words, folder=folder, environment=environment)


def start_module(name, *options, folder, environment=None):
    """Start a module as `python -m` does."""
    return Child(_run_module, name, *options, folder=folder, environment=environment)


def _run(target, arguments, outputs, folder, environment):
    for descriptor, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    target(*arguments)


def _run_script(script):
    warnings.resetwarnings()
    warnings.simplefilter("error")
    warnings.filterwarnings("default", "compiled kernels are missing", RuntimeWarning)
    runpy.run_path(script, run_name="__main__")


def _run_command(*words):
    from fedclust.cli.main import main

    sys.exit(main(list(words)))


def _run_module(name, *options):
    sys.argv = [name, *options]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
