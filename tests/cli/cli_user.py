"""A user of the command line: a folder with a study and two files, and what each command answered."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedclust.cli.main import main

STUDY = """\
name = "heart"
columns = ["age", "bp"]

[cluster]
method = "fuzzy-c-means"
k = 3

[sites.cleveland]
source = "cleveland.csv"

[sites.hungary]
source = "hungary.csv"
"""
# A real process, slowed down so that a signal finds it at work.
SLOWLY = textwrap.dedent("""
    import sys, time
    from fedclust.engines.local_engine import LocalEngine
    plain = LocalEngine.exchange
    def exchange(self, *args, **kwargs):
        time.sleep(0.03)
        return plain(self, *args, **kwargs)
    LocalEngine.exchange = exchange
    from fedclust.cli.main import main
    sys.exit(main(sys.argv[1:]))
""")


def csv(names, rows):
    return "\n".join([",".join(names), *(",".join(map(repr, row)) for row in np.asarray(rows).tolist()), ""])


def rows(seed=0, count=40):
    rng = np.random.default_rng(seed)
    return rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, 2))


@dataclass
class User:
    """The user's folder, and what came of the last command."""

    folder: Path
    capsys: pytest.CaptureFixture

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def study(self, *changes, text=STUDY):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.write("study.toml", text)

    def __call__(self, *arguments):
        """One command in this process: exit code, stdout, stderr."""
        self.capsys.readouterr()
        code = main(list(arguments))
        out, err = self.capsys.readouterr()
        return code, out, err

    def slowly(self, *arguments, **options):
        """The same in a process of its own, at a pace that lets signals in."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.Popen([sys.executable, "-c", SLOWLY, *arguments], cwd=self.folder, **pipes)
