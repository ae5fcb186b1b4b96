"""Build the wheel from the checkout and print its size, its modules and what in it only development needs."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
# What a part of a path looks like, file suffix removed, for each kind of content that users of the wheel do not need.
DEVELOPMENT_KINDS = {
    "reproduction": re.compile(r"reproduc\w*|papers?\d*|experiments?|published_numbers"),
    "benchmark": re.compile(r"bench|benchmarks?|benchmarking"),
    "fault rig": re.compile(r"faults?|fault_rig|misdeeds|misbehaviour|stages(_\w+)?|tests?"),
}
DEFINITION = """\
The wheel is built by pip from a copy of the files that git tracks or would track, so that no stale build folder gets
into it. A module is a .py file. A file is named as development content if a part of its path is called like
""" + "\n".join(f"{kind}: {pattern.pattern}" for kind, pattern in DEVELOPMENT_KINDS.items())


@dataclass(frozen=True)
class Wheel:
    """A built wheel: its file name, its size, and the paths and unpacked sizes of what it holds."""

    name: str
    size: int
    files: dict[PurePosixPath, int]

    @property
    def modules(self) -> list[PurePosixPath]:
        return [path for path in self.files if path.suffix == ".py"]

    @property
    def compiled_modules(self) -> list[PurePosixPath]:
        return [path for path in self.files if path.suffix in {".so", ".pyd"}]


def copy_sources(target: Path) -> None:
    """Copy the files of the checkout that git does not ignore."""
    git = shutil.which("git")
    if git is None:
        raise SystemExit("git is needed to tell sources from build products")
    listing = [git, "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file():  # a tracked file may be deleted in the working tree
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)


def build_wheel(*, isolated: bool) -> Wheel:
    """Build the wheel with pip in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        sources, built = Path(folder) / "sources", Path(folder) / "built"
        copy_sources(sources)
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(built), str(sources)]
        if not isolated:
            command.append("--no-build-isolation")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"pip wheel failed:\n{done.stdout}{done.stderr}")
        [path] = built.glob("*.whl")
        return read_wheel(path)


def read_wheel(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        files = {PurePosixPath(entry.filename): entry.file_size for entry in archive.infolist() if not entry.is_dir()}
    return Wheel(path.name, path.stat().st_size, files)


def find_kind(path: PurePosixPath) -> str | None:
    """The kind of development content that a file of the wheel is, by the parts of its path below the package."""
    for part in path.with_suffix("").parts[1:]:
        for kind, pattern in DEVELOPMENT_KINDS.items():
            if pattern.fullmatch(part):
                return kind
    return None


def group_development_files(wheel: Wheel) -> dict[tuple[str, str], list[PurePosixPath]]:
    """Development content by kind and by top-level package."""
    groups: defaultdict[tuple[str, str], list[PurePosixPath]] = defaultdict(list)
    for path in sorted(wheel.files):
        kind = find_kind(path)
        if kind:
            groups[kind, ".".join(path.with_suffix("").parts[:2])].append(path)
    return dict(sorted(groups.items()))


def format_report(wheel: Wheel) -> str:
    groups = group_development_files(wheel)
    compressed, unpacked = wheel.size / 1000, sum(wheel.files.values()) / 1000
    lines = [
        "|  |  |",
        "| --- | --- |",
        f"| wheel | {wheel.name} |",
        f"| size | {compressed:,.0f} kB ({unpacked:,.0f} kB unpacked) |",
        f"| modules | {len(wheel.modules)} and {len(wheel.compiled_modules)} compiled |",
        f"| files | {len(wheel.files)} |",
        f"| reproduction, benchmark and fault-rig files | {sum(map(len, groups.values()))} |",
    ]
    for (kind, package), paths in groups.items():
        size = sum(wheel.files[path] for path in paths) / 1000
        lines += ["", f"{kind} in {package}: {len(paths)} file{'s' * (len(paths) > 1)}, {size:,.0f} kB unpacked"]
        lines += [f"- {path}" for path in paths]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=DEFINITION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--no-build-isolation",
        action="store_true",
        help="build with the setuptools of this environment, without a package index",
    )
    options = parser.parse_args()
    print(format_report(build_wheel(isolated=not options.no_build_isolation)))


if __name__ == "__main__":
    main()
