"""One part of a description at a time: plain values, or a sentence and a note where describing it failed."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclust.core.errors import FedclustError, QuorumLost, Waiting


@dataclass
class PartGuard:
    """Parts that raised, each noted in a sentence: the run is finished, whatever can be said of it."""

    notes: list[str] = field(default_factory=list)

    def guard(self, part: str, describe_part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part as plain values, or why it is absent; sites that did not answer end the description, as a run."""
        try:
            found: dict[str, Any] = plain_values(describe_part())
        except (QuorumLost, Waiting):
            raise
        except Exception as error:  # noqa: BLE001 a finished run stays finished
            return self.absent(part, error)
        return found

    def absent(self, part: str, error: Exception) -> dict[str, Any]:
        """The sentence that stands for a part, which is noted as well."""
        why = str(error) if isinstance(error, FedclustError) else _where(error)
        self.notes.append(f"The description lacks its {part}, for describing it failed: {why}.")
        return {"absent": f"Describing this failed: {why}."}


def _where(error: Exception) -> str:
    """The kind and the place of an error; not its text, which may quote a row."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}, please report it"


def plain_values(value: Any) -> Any:
    """Numbers, texts, lists and dicts; what JSON cannot write as a number becomes a text."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, np.generic):
        return plain_values(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
