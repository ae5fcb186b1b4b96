"""Image sets are read from their authors' files: EMNIST's digits from idx files, Kuzushiji-49 from npz files."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedclust.core.errors import DataError

Bytes = npt.NDArray[np.uint8]
UINT8 = 8  # the type code for single bytes in the header of an idx file
EMNIST = "emnist-digits-{}-{}-ubyte"
KUZUSHIJI = "k49-{}-{}.npz"
PARTS = ("train", "test")


def original(name: str, folders: Sequence[Path]) -> tuple[Bytes, Bytes] | None:
    """Images and classes, train and test together, from the first folder with all files; None if there is none."""
    kinds = ("images-idx3", "labels-idx1") if name == "emnist_digits" else ("imgs", "labels")
    pattern = EMNIST if name == "emnist_digits" else KUZUSHIJI
    for folder in folders:
        found = [[_there(folder / pattern.format(part, kind)) for part in PARTS] for kind in kinds]
        if all(path is not None for paths in found for path in paths):
            images, labels = ([_read(path) for path in paths if path is not None] for paths in found)
            X, y = np.concatenate(images), np.concatenate(labels)
            # EMNIST stores its images by columns.
            return (X.transpose(0, 2, 1) if name == "emnist_digits" else X), y
    return None


def _there(path: Path) -> Path | None:
    """The file, compressed or not."""
    return next((one for one in (path, path.with_name(path.name + ".gz")) if one.is_file()), None)


def _read(path: Path) -> Bytes:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return np.asarray(file["arr_0"], np.uint8)
        return idx(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    except (OSError, ValueError, KeyError, EOFError, struct.error, zipfile.BadZipFile, zlib.error):
        raise DataError(f"{path} is damaged or has another format; download it again") from None


def idx(text: bytes) -> Bytes:
    """The array of an idx file: two zeros, a code for the type, the number of axes, their lengths, then the values.

    >>> idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9])).tolist()
    [[7, 8, 9]]
    """
    zeros, kind, axes = struct.unpack_from(">HBB", text)
    if zeros or kind != UINT8:
        raise ValueError("not an idx file of single bytes")
    shape = struct.unpack_from(f">{axes}I", text, 4)
    return np.frombuffer(text, np.uint8, offset=4 + 4 * axes).reshape(shape)
