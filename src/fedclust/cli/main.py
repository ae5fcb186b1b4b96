"""The command `fedclust`: runs the verb, and turns every error into one sentence and an exit code.

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
    rehearse_verb,
    report_verb,
    run_verb,
    site_verbs,
    update_verb,
)
from fedclust.core.errors import DataError, FedclustError, OutOfBounds, StudyError

EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED, EXIT_BROKEN_PIPE = 1, 2, 130, 141
DEBUG_VARIABLE = "FEDCLUST_DEBUG"
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OneLineParser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        message = message[0].lower() + message[1:]
        raise StudyError(f"{message}; see {self.prog} --help")


def make_parser() -> OneLineParser:
    """Build the parser with every verb and its arguments."""
    top = OneLineParser(
        prog="fedclust",
        description="Cluster data from several sites without pooling them. The result is exact to the last bit.",
        epilog="Start with 'fedclust demo'. 'fedclust VERB --help' explains each verb.",
    )
    top.add_argument("--version", action="version", version=f"fedclust {__version__}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    demo.add_demo_verb(verbs)
    run_verb.add_run_verb(verbs)
    rehearse_verb.add_rehearse_verb(verbs)
    enrol_verb.add_enrol_verb(verbs)
    coordinate_verbs.add_coordinate_verbs(verbs)
    update_verb.add_update_verb(verbs)
    report_verb.add_report_verb(verbs)
    audit_verb.add_audit_verb(verbs)
    site_verbs.add_site_verbs(verbs)
    export_verb.add_export_verb(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    warnings.showwarning = _print_warning
    try:
        chosen = read_arguments(arguments)
        code = 0 if chosen is None else int(chosen.act(chosen))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone. Without this, Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt as stop:
        return _print_error(str(stop) or "stopped; nothing was written", EXIT_STOPPED)
    except FedclustError as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        return _print_error(
            str(error), EXIT_REFUSED if isinstance(error, (StudyError, DataError, OutOfBounds)) else EXIT_FAILED
        )
    except OSError as error:
        return _print_error(_explain_os_error(error), EXIT_FAILED)
    except MemoryError:
        return _print_error(
            "this machine does not have enough memory; use a machine with more memory, or fewer rows at a time",
            EXIT_FAILED,
        )
    except Exception as error:  # noqa: BLE001 a traceback is no answer to a user
        return _print_error(_explain_bug(error), EXIT_FAILED)
    return code


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace | None:
    """Parse the arguments; print help and return None if that was requested."""
    top = make_parser()
    try:
        chosen = top.parse_args(arguments)
    except SystemExit:  # after --help and --version
        return None
    if chosen.verb is None:
        top.print_help()
        return None
    return chosen


def _print_error(sentence: str, code: int) -> int:
    print(f"fedclust: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _explain_os_error(error: OSError) -> str:
    """Explain an error of the operating system; a path is safe to show."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in DISK_FULL_ERRORS:
        return f"the disk is full{where}; free some space, then continue with fedclust resume"
    return f"{(error.strerror or type(error).__name__).lower()}{where}; fix this and try again"


def _explain_bug(error: Exception) -> str:
    """Say where a bug occurred, but not its text, which may quote a row."""
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "fedclust" in f.filename]
    place = f"{ours[-1].filename.rpartition('fedclust/')[2]}:{ours[-1].lineno}" if ours else "an unknown place"
    return (
        f"this is a bug in fedclust: {type(error).__name__} at {place}; please report it "
        f"({DEBUG_VARIABLE}=1 shows details)"
    )


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, RuntimeWarning) or os.environ.get(DEBUG_VARIABLE):
        print(f"fedclust: note: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
