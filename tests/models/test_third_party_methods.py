"""A package of its own adds methods: pip installs it, and the command line takes them as fedclust's."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedclust as fc
from fresh_process import start_command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-an-algorithm.md"
PACKAGE = ROOT / "tests" / "third_party"
SOURCE = Path(fc.__file__).parents[1]
COLUMNS = ("x", "y", "z")
STUDY = """
name = "directions"

[cluster]
method = "spherical-k-means"
k = {k}
max_iter = {iterations}
tol = {tol}

[privacy]
aggregation = "{aggregation}"

[sites.north]
source = "north.csv"

[sites.east]
source = "east.csv"

[sites.south]
source = "south.csv"
"""


def study(k="3", iterations=8, tol="1e-9", aggregation="plain"):
    return STUDY.format(k=k, iterations=iterations, tol=tol, aggregation=aggregation)


def guide(language):
    """The code of the page, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip installed the package to; fedclust is where it was."""
    folder = tmp_path_factory.mktemp("third-party")
    shutil.copytree(PACKAGE, folder / "package", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    *module, _ = guide("python")  # the last block is its test
    (folder / "package" / "example_methods" / "centroid.py").write_text("\n".join(module), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    target = folder / "site-packages"
    done = subprocess.run(
        [*pip, "--target", target, folder / "package"], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def user(installed, tmp_path):
    """The command line where the package is installed, in a folder with three sites' rows."""
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.2], [0.1, 0.0, 1.0]])
    for name, count in (("north", 60), ("east", 45), ("south", 50)):
        rows = directions[rng.integers(3, size=count)] * rng.uniform(1, 4, (count, 1)) + rng.normal(0, 0.05, (count, 3))
        lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in rows.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return User(tmp_path, {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(SOURCE)])})


class User:
    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment

    def start(self, *words):
        return start_command(words, self.folder, self.environment)

    def __call__(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    def run(self, text, *words, name="study"):
        (self.folder / f"{name}.toml").write_text(text)
        return self("run", f"{name}.toml", "--out", name, *words)

    def fitted(self, name):
        return json.loads((self.folder / name / "model.json").read_text())["fitted"]


def test_the_guides_method_runs_is_reported_and_is_read_back(user):
    registration, lines = guide("ini")
    assert registration.splitlines()[-1] in (PACKAGE / "pyproject.toml").read_text()
    user.run(f'{lines}\n[sites.east]\nsource = "east.csv"\n', "--quiet", name="heights")
    rows = np.concatenate([np.loadtxt(user.folder / f"{n}.csv", delimiter=",", skiprows=1) for n in ("north", "east")])
    centers = np.array(user.fitted("heights")["cluster_centers_"]["array"])
    assert centers == pytest.approx(rows.mean(axis=0))
    user("report", "heights", "--out", "heights.html")
    page = (user.folder / "heights.html").read_text(encoding="utf-8")
    assert "Found by the centre of all rows" in page
    user("site", "assign", "heights/model.json", "--data", "east.csv", "--out", "labels.csv")
    assert (user.folder / "labels.csv").read_text().splitlines()[1] == "0,0"


def test_a_third_partys_method_runs_over_sites_in_every_mode_to_the_same_bits(user):
    user.run(study(), "--quiet", name="plain")
    assert sum(user.fitted("plain")["cluster_sizes_"]["array"]) == 155
    for mode in ("secure", "blind"):
        user.run(study(aggregation=mode, tol='"none"'), "--quiet", name=mode)
        assert user.fitted(mode)["cluster_centers_"] == user.fitted("plain")["cluster_centers_"]


def test_its_run_is_reported_audited_and_exported(user):
    out = user.run(study(), name="plain")
    assert "3 clusters by spherical-k-means" in out
    assert "Lossless" in out
    user("report", "plain", "--out", "plain.html")
    assert "Found by spherical k-means" in (user.folder / "plain.html").read_text(encoding="utf-8")
    assert "example_methods.spherical_kmeans.sum_directions" in (user.folder / "plain.html").read_text(encoding="utf-8")
    user("export", "plain", "--to", "csv")
    assert (user.folder / "plain" / "export" / "centers.csv").read_text().startswith('"cluster","size","x","y","z"')
    assert "says little about the answers to example_methods.spherical_kmeans.sum_directions." in user("audit", "plain")


def test_the_audit_attacks_its_sums_by_their_declared_classes(user):
    rng = np.random.default_rng(3)
    for name in ("north", "east", "south"):
        rows = rng.normal(size=(20, 3))
        rows /= np.sqrt((rows**2).sum(axis=1))[:, None]  # a sum of directions is a sum of rows
        lines = [",".join(COLUMNS), *(",".join(map(repr, row)) for row in rows.tolist())]
        (user.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    for mode in ("plain", "secure"):
        user.run(study(k="8", aggregation=mode), "--quiet", name=mode)
        attacks = json.loads(user("audit", mode, "--json"))["attacks"]
        exact = {one["attack"]: one["exact"] for one in attacks if one["observer"] == "coordinator"}
        assert exact["a3"] > 0
        assert (exact["a"] > 0) == (mode == "plain")


def test_k_is_chosen_for_it(user):
    user.run(study(k='"2..4"'), "--quiet", name="chosen")
    found = json.loads((user.folder / "chosen" / "analysis.json").read_text())
    assert (found["k"], found["selection"]["k"], found["method"]) == (3, 3, "spherical-k-means")


def test_its_run_resumes_after_a_kill_to_the_same_bits(user):
    text = study(iterations=60, tol='"none"')
    user.run(text, "--quiet", name="whole")
    (user.folder / "study.toml").write_text(text)
    process, journal = user.start("run", "study.toml", "--out", "killed"), user.folder / "killed" / "journal"
    limit = time.monotonic() + 30
    while not (journal.exists() and journal.stat().st_size > 12_000):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert not (user.folder / "killed" / "model.json").exists()
    user("resume", "killed", "--quiet")
    assert user.fitted("killed") == user.fitted("whole")


def write_package(folder, module):
    """A package with a method called nowhere, whose module has this text; None for no module."""
    facts = folder / "broken_methods-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-methods\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[fedclust.methods]\nnowhere = broken_methods:METHOD\n")
    if module is not None:
        (folder / "broken_methods.py").write_text(module)
    return str(folder)


STR_SUBCLASS = """
from fedclust import KMeans
from fedclust.models import Method
class Name(str):
    pass
class Other(KMeans):
    pass
METHOD = Method(Name("nowhere"), Other, "another", "Another.")
"""
OTHER = "from fedclust import KMeans\nfrom fedclust.models import Method\nclass Other(KMeans): pass\n"
BROKEN_MODULES = {
    "no method": ("METHOD = 5", "TypeError: broken_methods:METHOD is not a fedclust.models.Method"),
    "keys without names": (
        f"{OTHER}METHOD = Method('nowhere', Other, 'another', 'Another.', ['tol'])",
        "TypeError: a method's parameters must be a mapping, not list",
    ),
    "keys without a check": (
        f"{OTHER}METHOD = Method('nowhere', Other, 'another', 'Another.', {{'tol': 5}})",
        "TypeError: method 'nowhere' must describe each of its keys by a Parameter",
    ),
    "no estimator": (
        f"{OTHER}METHOD = Method('nowhere', object, 'another', 'Another.')",
        "TypeError: method 'nowhere' has an estimator that is no class of FederatedEstimator",
    ),
    "missing": (None, "ModuleNotFoundError"),
    "exits": ("raise SystemExit(7)", "SystemExit: 7"),
    "base exception": ("class Odd(BaseException): pass\nraise Odd('no')", "Odd: no"),
    "subclass of str": (STR_SUBCLASS, "TypeError: a method's texts must be plain strings, not Name"),
}


@pytest.mark.parametrize("case", BROKEN_MODULES)
def test_a_broken_package_is_named_and_stops_no_other(case, user, tmp_path):
    module, why = BROKEN_MODULES[case]
    user.environment["PYTHONPATH"] += os.pathsep + write_package(tmp_path / "broken", module)
    (user.folder / "study.toml").write_text(study())
    process = user.start("run", "study.toml", "--out", "plain", "--quiet")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "method 'nowhere' of package 'broken-methods' cannot be loaded" in err
    assert why in err
    (user.folder / "study.toml").write_text(study().replace("spherical-k-means", "nowhere"))
    process = user.start("run", "study.toml", "--out", "nowhere")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "method 'nowhere' of package 'broken-methods' cannot be loaded" in err.splitlines()[-1]


GREEDY = """
from fedclust import KMeans
from fedclust.models import Method
from fedclust.models.parameters import one_of
print("hello")
class Greedy(KMeans):
    def __init__(self, n_clusters=8, *, criterion="mine", random_state=None):
        super().__init__(n_clusters, random_state=random_state)
        self.criterion = criterion
METHOD = Method("nowhere", Greedy, "another", "Another.", {"criterion": one_of("mine")})
"""


def test_a_package_neither_changes_the_keys_of_other_methods_nor_writes_into_their_output(user, tmp_path):
    user.environment["PYTHONPATH"] += os.pathsep + write_package(tmp_path / "greedy", GREEDY)
    text = study(k='"2..3"\ncriterion = "index"\nrestarts = 1').replace("spherical-k-means", "k-means")
    assert json.loads(user.run(text, "--json", name="chosen"))["k"] in (2, 3)
