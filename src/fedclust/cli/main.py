"""The command `fedclust`: finds the verb, and turns whatever goes wrong into one sentence and an exit code.

0 done; 1 the run failed; 2 a bad study, bad data or bad arguments; 4 the run waits for sites; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from fedclust import __version__
from fedclust.cli import (
    audit_verb,
    coordinate_verbs,
    demo,
    enrol_verb,
    export_verb,
    report_verb,
    run_verb,
    site_verbs,
    update_verb,
)
from fedclust.core.errors import DataError, FedclustError, OutOfBounds, StudyError

FAILED, REFUSED, STOPPED, UNHEARD = 1, 2, 130, 141
DEBUG = "FEDCLUST_DEBUG"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Parser(argparse.ArgumentParser):
    """Arguments, complained about in one line."""

    def error(self, message: str) -> NoReturn:
        message = message[0].lower() + message[1:]
        raise StudyError(f"{message}; see {self.prog} --help")


def parser() -> Parser:
    """Every verb with its arguments."""
    top = Parser(
        prog="fedclust",
        description="Cluster data that lie at several sites without pooling them, exact to the last bit.",
        epilog="Try 'fedclust demo' first; 'fedclust VERB --help' tells more about each.",
    )
    top.add_argument("--version", action="version", version=f"fedclust {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for family in (
        demo,
        run_verb,
        enrol_verb,
        coordinate_verbs,
        update_verb,
        report_verb,
        audit_verb,
        site_verbs,
        export_verb,
    ):
        family.add(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    warnings.showwarning = _one_line
    try:
        chosen = read_arguments(arguments)
        code = 0 if chosen is None else int(chosen.act(chosen))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output is gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNHEARD
    except KeyboardInterrupt as stop:
        return _say(str(stop) or "stopped; nothing was written", STOPPED)
    except FedclustError as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        return _say(str(error), REFUSED if isinstance(error, (StudyError, DataError, OutOfBounds)) else FAILED)
    except OSError as error:
        return _say(_from_system(error), FAILED)
    except MemoryError:
        return _say("the machine has not enough memory for this; give it more, or fewer rows at once", FAILED)
    except Exception as error:  # noqa: BLE001 a traceback is no answer to a user
        return _say(_bug(error), FAILED)
    return code


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace | None:
    """What was asked for; None where it was help, which is printed then."""
    top = parser()
    try:
        chosen = top.parse_args(arguments)
    except SystemExit:  # after --help and --version
        return None
    if chosen.verb is None:
        top.print_help()
        return None
    return chosen


def _say(sentence: str, code: int) -> int:
    print(f"fedclust: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _from_system(error: OSError) -> str:
    """The system's reason; a path is safe to show."""
    if os.environ.get(DEBUG):
        traceback.print_exc()
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in FULL:
        return f"no room is left for a file on this disk{where}; make room, then go on with fedclust resume"
    return f"{(error.strerror or type(error).__name__).lower()}{where}; mend that and try again"


def _bug(error: Exception) -> str:
    """Where it happened. Not its text, which may quote a row."""
    if os.environ.get(DEBUG):
        traceback.print_exc()
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "fedclust" in f.filename]
    place = f"{ours[-1].filename.rpartition('fedclust/')[2]}:{ours[-1].lineno}" if ours else "an unknown place"
    return f"this is a bug in fedclust: {type(error).__name__} at {place}; please report it ({DEBUG}=1 shows all)"


def _one_line(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, RuntimeWarning) or os.environ.get(DEBUG):
        print(f"fedclust: note: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
