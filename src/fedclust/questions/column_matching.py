"""Match the columns of a federation to those of a model, by name if there are names, and never by a guess."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError
from fedclust.core.types import Ints
from fedclust.questions.schema import Column, Schema


def match_columns(columns: Sequence[str], known: Sequence[str], declared: Schema, known_as: Schema) -> list[int]:
    """Where the model, which knows the columns `known`, has each of `columns`.

    By name; by place only where one of the two was made of bare arrays, whose columns are called x0, x1, ...

    >>> match_columns(("b", "a"), ("a", "b"), {}, {}), match_columns(("a", "b"), ("x0", "x1"), {}, {})
    ([1, 0], [0, 1])
    """
    if len(columns) != len(known):
        raise DataError(
            f"the sites have {count_noun(len(columns), 'column')}, but the model has {len(known)}; "
            f"use the model's columns: {', '.join(known)}"
        )
    if set(columns) == set(known):
        _check_same_meaning(declared, known_as)
        return [list(known).index(name) for name in columns]
    if _is_unnamed(columns) or _is_unnamed(known):
        return list(range(len(columns)))
    lacking = [name for name in known if name not in columns]
    raise DataError(
        f"the sites have no column '{lacking[0]}', which the model was fitted on; "
        f"use the model's column names: {', '.join(known)}"
    )


def inverse(order: Sequence[int]) -> Ints:
    """Where the federation has each of the model's columns.

    >>> inverse([2, 0, 1]).tolist()
    [1, 2, 0]
    """
    return np.argsort(np.asarray(order, np.int64), kind="stable")


def _is_unnamed(columns: Sequence[str]) -> bool:
    return all(name == f"x{place}" for place, name in enumerate(columns))


def _check_same_meaning(declared: Schema, known: Schema) -> None:
    """A level's code, a unit or a mark for gaps that differs would change rows without a sign of it."""
    for name, column in known.items():
        if (here := declared.get(name)) is not None and (aspect := _differing_aspect(here, column)):
            raise DataError(
                f"the sites' declaration of column '{name}' differs from the model's ({aspect}); "
                "use the model's declaration at the sites"
            )


def _differing_aspect(here: Column, model: Column) -> str:
    if here.type != model.type:
        return "type"
    if (here.levels, here.ranks) != (model.levels, model.ranks):
        return "order of levels"
    if here.unit and model.unit and here.unit != model.unit:
        return "unit"
    return "" if set(here.missing_values) >= set(model.missing_values) else "marker for missing values"
