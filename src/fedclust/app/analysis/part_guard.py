"""One part of a description at a time: plain values, or a sentence and a note where describing it failed."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedclust.core.errors import DataError, FedclustError, QuorumLost, Waiting

T = TypeVar("T")


@dataclass
class PartGuard:
    """Parts that raised, each noted in a sentence: the run is finished, whatever can be said of it."""

    notes: list[str] = field(default_factory=list)

    def guard(self, part: str, describe_part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part as JSON stores it, or why it is absent; sites that did not answer end the description, as a run."""
        try:
            found: dict[str, Any] = json_values(describe_part())
        except (QuorumLost, Waiting):
            raise
        except Exception as error:  # noqa: BLE001 a finished run stays finished
            return self.absent(part, error)
        return found

    def read(self, part: str, read_value: Callable[[], T], default: T) -> T:
        """A value that code of others computes, without asking a site; the default, and a note, if that fails."""
        try:
            return read_value()
        except Exception as error:  # noqa: BLE001 a finished run stays finished
            self.absent(part, error)
        return default

    def absent(self, part: str, error: Exception) -> dict[str, Any]:
        """The sentence that stands for a part, which is noted as well."""
        why = str(error) if isinstance(error, FedclustError) else _where(error)
        self.notes.append(f"A part of the description is missing ({part}), because an error occurred: {why}.")
        return {"absent": f"This part is missing because an error occurred: {why}."}


def _where(error: Exception) -> str:
    """The kind and the place of an error; not its text, which may quote a row."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}; please report it"


def json_values(value: Any) -> Any:
    """What JSON gives back of a value, so that whatever is kept can be written; other values are refused here.

    >>> json_values({"k": np.int64(3), "shifts": (0.5, np.nan)})
    {'k': 3, 'shifts': [0.5, 'nan']}
    """
    return json.loads(json.dumps(_plain_values(value), allow_nan=False))


def _plain_values(value: Any) -> Any:
    """Numbers, texts, lists and dicts; what JSON cannot write as a number becomes a text."""
    if isinstance(value, Mapping):
        return {str(key): _plain_values(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain_values(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain_values(item) for item in value]
    if isinstance(value, np.generic):
        return _plain_values(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise DataError(f"it contains a value of type {type(value).__name__}, which JSON cannot store")
