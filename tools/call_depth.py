"""Run a study in this process and print the frames from the command line to the kernel that sweeps the rows."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import fedclust
from fedclust.cli.main import main as run_command
from fedclust.kernels import set_threads

KERNEL_FUNCTION = "accumulate"
DEFINITION = """\
The stack reaches from `main` of fedclust.cli.main to the first function of fedclust.kernels called `accumulate` (see
--function), both included, at its first call. Frames of other packages and of the standard library are printed with a
dash and not counted. The study runs in one thread, because a second thread has a stack of its own.
"""


@dataclass(frozen=True)
class Frame:
    """One call on the stack: the file of its code, the line it has reached and its function."""

    path: Path
    line: int
    function: str


@dataclass
class StackRecorder:
    """A profile function that keeps the stack of the first call of the kernel, and the deepest."""

    package: Path
    function: str
    calls: int = 0
    first: list[Frame] = field(default_factory=list)
    deepest: list[Frame] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or frame.f_code.co_name != self.function:
            return
        if Path(frame.f_code.co_filename).parent != self.package / "kernels":
            return
        stack = self.read_stack(frame)
        self.calls += 1
        self.first = self.first or stack
        self.deepest = max(self.deepest, stack, key=self.count_frames)

    def read_stack(self, frame: FrameType | None) -> list[Frame]:
        """The frames from the command line's `main` down to this one."""
        main = self.package / "cli" / "main.py"
        stack: list[Frame] = []
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            stack.insert(0, Frame(path, frame.f_lineno, frame.f_code.co_name))
            if path == main and frame.f_code.co_name == "main":
                return stack
            frame = frame.f_back
        raise SystemExit(f"{self.function} was not called from main in {main}")

    def is_counted(self, frame: Frame) -> bool:
        return frame.path.is_relative_to(self.package)

    def count_frames(self, stack: list[Frame]) -> int:
        return sum(self.is_counted(frame) for frame in stack)

    def count_files(self, stack: list[Frame]) -> int:
        return len({frame.path for frame in stack if self.is_counted(frame)})

    def format_frames(self, stack: list[Frame]) -> str:
        lines, number = [], 0
        for frame in stack:
            counted = self.is_counted(frame)
            number += counted
            path = frame.path.relative_to(self.package.parent) if counted else frame.path
            lines.append(f"{number if counted else '-':>3}  {path}:{frame.line} {frame.function}")
        return "\n".join(lines)

    def format_size(self, stack: list[Frame]) -> str:
        return f"{self.count_frames(stack)} frames in {self.count_files(stack)} files"


def run_study(study: Path, function: str) -> StackRecorder:
    """Run `fedclust run` on a study, its run folder in a temporary place, and record the kernel's calls."""
    set_threads(1)  # a profile function sees the calls of its own thread only
    recorder = StackRecorder(Path(fedclust.__file__).parent, function)
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(recorder)
        try:
            code = run_command(["run", str(study), "--out", str(Path(folder) / "run"), "--quiet"])
        finally:
            sys.setprofile(None)
    if code:
        raise SystemExit(f"fedclust run {study} ended with exit code {code}")
    if not recorder.calls:
        raise SystemExit(f"the run called no function {function} of fedclust.kernels in this thread; see --function")
    return recorder


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=DEFINITION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study.toml")
    parser.add_argument(
        "--function", default=KERNEL_FUNCTION, metavar="NAME", help="the kernel's function (default: %(default)s)"
    )
    parser.add_argument("--most", type=int, metavar="FRAMES", help="exit with 1 if the first call is deeper than this")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    recorder = run_study(options.study, options.function)
    print(recorder.format_frames(recorder.first))
    print(f"first call: {recorder.format_size(recorder.first)}")
    print(f"deepest of {recorder.calls} calls: {recorder.format_size(recorder.deepest)}")
    return int(options.most is not None and recorder.count_frames(recorder.first) > options.most)


if __name__ == "__main__":
    sys.exit(main())
