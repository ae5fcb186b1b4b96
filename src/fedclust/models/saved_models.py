"""Saved models: a fitted model as a JSON document that keeps every bit of its numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core.errors import DataError
from fedclust.core.types import Array

MODEL_FORMAT, MODEL_VERSION = "fedclust-model", 1


def read_model_document(path: str | Path) -> dict[str, Any]:
    """Read the document of a saved model, and check its format and version."""
    try:
        document = json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise DataError(f"there is no model at {path}; check the path") from None
    except IsADirectoryError:
        raise DataError(
            f"{path} is a folder; give the path of a model file, such as {Path(path) / 'model.json'}"
        ) from None
    except (ValueError, UnicodeDecodeError):
        raise DataError(f"{path} is not a saved model; give a file that fedclust wrote, such as model.json") from None
    if not isinstance(document, dict) or document.get("format") != MODEL_FORMAT:
        raise DataError(f"{path} is not a saved model; give a file that fedclust wrote, such as model.json")
    if document.get("version") != MODEL_VERSION:
        raise DataError(
            f"{path} is in format {document.get('version')}, but this version of fedclust reads format "
            f"{MODEL_VERSION}; update fedclust"
        )
    return document


def to_plain_value(value: Any) -> Any:
    """Return a parameter or a fitted attribute as a JSON value; arrays keep their shape and type."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"names": [str(name) for name in value]}
    if isinstance(value, np.ndarray):
        numbers = [str(number) if _is_not_finite(number) else number for number in value.ravel().tolist()]
        return {"array": numbers, "shape": list(value.shape), "dtype": value.dtype.name}
    if isinstance(value, np.generic):
        return to_plain_value(value.item())
    if _is_not_finite(value):  # strict JSON has no infinity
        return {"number": str(value)}
    if isinstance(value, dict):
        return {name: to_plain_value(item) for name, item in value.items()}
    return [to_plain_value(item) for item in value] if isinstance(value, (tuple, list)) else value


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def from_plain_value(value: Any) -> Any:
    """Return the value that `to_plain_value` was given; tuples become lists."""
    if isinstance(value, dict) and set(value) == {"array", "shape", "dtype"}:
        return _array_from_plain(value)
    if isinstance(value, dict) and set(value) == {"names"}:
        return np.array(value["names"], object)
    if isinstance(value, dict) and set(value) == {"number"}:
        return float(value["number"])
    if isinstance(value, dict):
        return {name: from_plain_value(item) for name, item in value.items()}
    return [from_plain_value(item) for item in value] if isinstance(value, list) else value


def _array_from_plain(value: dict[str, Any]) -> Array:
    if value["dtype"] not in ("float64", "float32", "int64", "int32"):
        raise DataError("the saved model holds an array of an unknown type; the file may be damaged")
    return np.array(value["array"], value["dtype"]).reshape(value["shape"])
