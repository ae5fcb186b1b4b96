"""What holds for the project as a whole, whoever writes the next module."""

import ast
import doctest
import importlib
import itertools
import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import fedclust

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fedclust"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LONGEST = {".py": 400, ".c": 600, ".h": 600}
HOMES = {  # a dependency that few need, and the only places that may import it
    "torch": ("algorithms/autoencoders/autoencoder.py", "algorithms/dec.py"),
    "nvflare": ("engines/nvflare",),
    "flwr": ("engines/flower", "tests/fault_rig/loops_flower.py"),
    "dask": ("engines/dask_cluster.py",),
    "distributed": ("engines/dask_cluster.py",),
    "duckdb": ("site/sources/",),
    "pyarrow": ("site/sources/", "app/output_files.py", "benchmarks/"),  # elsewhere it only writes
    "opendp": ("privacy/",),
    "dp_accounting": ("privacy/",),
    "adbc_driver_postgresql": ("site/sources/",),
    "pickle": (),
}
ELSEWHERE = {"nvflare", "flwr", "dask", "distributed"}  # make test-engines installs them
TARGETS = {
    *("help", "demo", "test", "check", "docs", "clean", "test-slow", "test-long", "test-engines", "test-processors"),
    *("reproduce", "bench", "bench-engines", "attacks", "faults"),
}


def within(path):
    return path.relative_to(PACKAGE).as_posix()


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path):
    """The distributions a module imports, wherever in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def names_called(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "id", getattr(node.func, "attr", None))


def own_files():
    """Whatever we wrote, tests included, generated folders left out."""
    for name in (
        "Makefile",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "setup.py",
        "mkdocs.yml",
    ):
        yield ROOT / name
    for folder in ("src", "tests", "docs", "papers", "benchmarks", "tools", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in {".py", ".pyi", ".c", ".h", ".md", ".toml", ""}:
                yield path


@pytest.mark.parametrize("path", MODULES, ids=within)
def test_a_module_opens_by_saying_what_it_is_for(path):
    assert ast.get_docstring(tree(path)), f"{within(path)} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=within)
def test_what_travels_is_built_at_the_gate_only(path):
    assert within(path) == "site/gate.py" or "SealedAnswer" not in names_called(path)


def test_the_gate_does_build_it():
    assert "SealedAnswer" in names_called(PACKAGE / "site" / "gate.py")


@pytest.mark.parametrize("path", MODULES, ids=within)
def test_heavy_dependencies_are_imported_where_they_belong(path):
    strangers = [name for name in imports(path) if name in HOMES and not within(path).startswith(HOMES[name] or ("-",))]
    assert strangers == []


@pytest.mark.parametrize("path", sorted(p for p in PACKAGE.rglob("*") if p.suffix in LONGEST), ids=within)
def test_a_file_can_be_read_in_one_go(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST[path.suffix]


def test_no_file_names_a_place_on_somebodys_machine():
    places = re.compile("|".join(f"(?<![\\w.~-])/{name}/" for name in ("work", "tmp", "root", "opt")))
    found = [path.relative_to(ROOT) for path in own_files() if places.search(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("path", MODULES, ids=within)
def test_examples_in_docstrings_run(path):
    name = ".".join(("fedclust", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    if name.endswith("__main__"):
        pytest.skip("runs the command")
    for extra in {"nvflare", "flwr", "dask"} & set(imports(path)):
        pytest.importorskip(extra, reason="an extra that is tested in an environment of its own")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as absent:
        if str(absent.name).partition(".")[0] not in ELSEWHERE:
            raise
        pytest.skip(f"needs {absent.name}, an extra that is tested in an environment of its own")
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_no_two_files_of_tests_share_a_name():
    """Pytest imports them by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_version_is_written_once_in_two_places():
    assert PROJECT["project"]["version"] == fedclust.__version__


def test_every_public_name_can_be_had():
    assert [name for name in fedclust.__all__ if not hasattr(fedclust, name)] == []


def test_every_part_of_the_package_has_a_layer():
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    placed = {name.strip().strip("()") for layer in layers for name in re.split(r"[:|]", layer)}
    parts = {p.stem for p in PACKAGE.iterdir() if (p / "__init__.py").exists() or p.suffix == ".py"}
    assert {f"fedclust.{part}" for part in parts - {"__init__", "__main__"}} - placed == set()


def test_every_dependency_is_pinned():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower() for line in pins}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *itertools.chain(*extras)]
    names = {re.split(r"[\[<>=~! ]", requirement)[0].lower() for requirement in wanted} - {"fedclust"}
    assert names - pinned == set()
    assert "torch==2.13.0" in pins


def test_continuous_integration_is_make_test_and_nothing_else():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_every_target_that_help_lists_exists():
    def make(*words):
        words = ["make", "-C", ROOT, "--no-print-directory", *words]
        return subprocess.run(words, check=False, capture_output=True, text=True)

    listed = set(re.findall(r"^  make (\S+)", make("help").stdout, flags=re.MULTILINE))
    assert listed >= TARGETS
    assert make().stdout == make("help").stdout
    assert [target for target in sorted(listed) if make("-n", target).returncode != 0] == []
