"""Sites for experiments in deep clustering have a few classes each, optional common rows, and wrong first labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedclust.core.errors import DataError, StudyError
from fedclust.datasets.loading import Dataset, _folders, load
from papers.original_files import original

Ints = npt.NDArray[np.int64]
# Kuzushiji-49's classes that are common enough: the paper keeps the 31 with about 6,000 images each.
KUZUSHIJI_CLASSES = 31
FETCHED = {  # sets that no package index has, and the files to put into the data folder
    "emnist_digits": (
        "EMNIST (Cohen et al. 2017): emnist-digits-train-images-idx3-ubyte.gz, "
        "emnist-digits-train-labels-idx1-ubyte.gz and the two test files"
    ),
    "kuzushiji49": (
        "Kuzushiji-49 (Clanuwat et al. 2018): k49-train-imgs.npz, k49-train-labels.npz and the two test files"
    ),
}


@dataclass(frozen=True, eq=False)
class Population:
    """The rows of each site (indices into X), the class of each row, and its first cluster."""

    rows: dict[str, Ints]
    classes: dict[str, Ints]
    start: dict[str, Ints]

    @property
    def shared_classes(self) -> int:
        """The number of classes that at least two sites have, which is the number of communities to find."""
        held = [label for own in self.classes.values() for label in np.unique(own)]
        return int((np.unique(held, return_counts=True)[1] >= 2).sum())


def populate(
    y: npt.ArrayLike,
    sites: int = 25,
    *,
    classes: tuple[int, int] | None = None,
    per_class: int = 500,
    overlap: float = 0.0,
    dirt: float = 0.0,
    seed: int = 0,
) -> Population:
    """Split rows among sites as in paper 4: each gets from `classes[0]` to `classes[1]` classes (2 to half of all).

    Of each class it gets `per_class` rows. A share `overlap` of them is the same at every site that holds the class;
    the others are no other site's. A row begins in its class's cluster or, with probability `dirt`, in another of its
    site, drawn evenly. A class that runs out of rows is an error.

    >>> found = populate(np.arange(60) % 3, sites=4, classes=(2, 2), per_class=5)
    >>> [len(own) for own in found.rows.values()], found.shared_classes
    ([10, 10, 10, 10], 3)
    """
    y = np.asarray(y)
    names = np.unique(y)
    low, high = (2, max(2, len(names) // 2)) if classes is None else classes
    if not 1 <= low <= high <= len(names):
        raise StudyError(f"a site cannot have {low} to {high} of {len(names)} classes; choose 1 to {len(names)}")
    if not (0 <= overlap <= 1 and 0 <= dirt <= 1):
        raise StudyError(f"overlap is {overlap} and dirt is {dirt}; both must be numbers from 0 to 1")
    rng = np.random.default_rng(seed)
    left = {name: rng.permutation(np.flatnonzero(y == name)) for name in names}
    common = round(overlap * per_class)
    used = dict.fromkeys(names, common)
    found = Population({}, {}, {})
    digits = max(2, len(str(sites)))
    # All classes are assigned before any row, so the assignment depends on the seed and not on the number of rows.
    held = [np.sort(rng.choice(names, int(rng.integers(low, high + 1)), replace=False)) for _ in range(sites)]
    for number, mine in enumerate(held, start=1):
        parts = []
        for name in mine:
            stop = used[name] + per_class - common
            if stop > len(left[name]):
                raise DataError(
                    f"class {name} has {len(left[name])} rows, too few for {sites} sites with {per_class} rows per "
                    "class; ask for fewer sites or rows"
                )
            parts.append(np.concatenate([left[name][:common], left[name][used[name] : stop]]))
            used[name] = stop
        party = f"site-{number:0{digits}d}"
        found.rows[party] = np.concatenate(parts)
        found.classes[party] = np.asarray(y[found.rows[party]], np.int64)
        found.start[party] = spoilt(np.repeat(np.arange(len(mine)), per_class), len(mine), dirt, rng)
    return found


def affordable(y: npt.ArrayLike, sites: int = 25, *, overlap: float = 0.0, seed: int = 0, most: int = 500) -> int:
    """The largest number of rows per class, up to `most`, that `populate` can give for this seed.

    >>> affordable(np.arange(60) % 3, sites=4, seed=0)  # 20 rows a class, held by three sites at most
    6
    """
    y = np.asarray(y)
    have = dict(zip(*np.unique(y, return_counts=True), strict=True))
    one = populate(y, sites, per_class=1, seed=seed)
    holders: dict[int, int] = {}
    for own in one.classes.values():
        for label in np.unique(own).tolist():
            holders[label] = holders.get(label, 0) + 1
    fits = [
        size
        for size in range(1, most + 1)
        if all(round(overlap * size) + n * (size - round(overlap * size)) <= have[c] for c, n in holders.items())
    ]
    return max(fits, default=0)


def spoilt(labels: Ints, clusters: int, dirt: float, rng: np.random.Generator) -> Ints:
    """Labels of which a share `dirt` moves to a random other cluster."""
    move = rng.random(len(labels)) < dirt
    if clusters < 2:
        return np.asarray(labels, np.int64)
    shift = rng.integers(1, clusters, len(labels))
    return np.asarray(np.where(move, (labels + shift) % clusters, labels), np.int64)


def images(name: str) -> Dataset:
    """A stored set of images; `kuzushiji49` without its rare classes, `union30` made of three sets of ten."""
    if name == "union30":
        return _union()
    if name not in FETCHED:
        return load(name, dtype=None)
    found = original(name, _folders())
    if found is None:
        raise DataError(
            f"data set '{name}' was not found; get {FETCHED[name]} and put the files into the folder $FEDCLUST_DATA"
        )
    X, y = found
    names = tuple(str(label) for label in range(int(y.max()) + 1))
    pixels = tuple(f"x{i}" for i in range(X[0].size))
    data = Dataset(name, X.reshape(len(X), -1), y.astype(np.int64), names, pixels)
    return _common(data) if name == "kuzushiji49" else data


def _common(data: Dataset) -> Dataset:
    """The 31 classes with the most rows."""
    y = np.asarray(data.y)
    names, counts = np.unique(y, return_counts=True)
    kept = np.sort(names[np.argsort(-counts, kind="stable")[:KUZUSHIJI_CLASSES]])
    rows = np.isin(y, kept)
    classes = tuple(data.classes[i] for i in kept) if data.classes else tuple(str(i) for i in kept)
    return Dataset(data.name, data.X[rows], np.searchsorted(kept, y[rows]).astype(np.int64), classes, data.features)


def _union() -> Dataset:
    parts = [load(name, dtype=None) for name in ("mnist", "kmnist_partial", "fashion_mnist")]
    y: list[npt.NDArray[Any]] = [np.asarray(part.y) + 10 * i for i, part in enumerate(parts)]
    classes = tuple(f"{part.name}:{i}" for part in parts for i in range(10))
    return Dataset("union30", np.concatenate([part.X for part in parts]), np.concatenate(y), classes, parts[0].features)
