"""What a handler must declare: one that says less than a site must know cannot be imported."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedclust.core.noise_price import Noisy, Price, PricedQuestion
from fedclust.core.question_types import FlooredQuestion, GapsQuestion, ViewedQuestion
from fedclust.core.release import FLOOR_FROM_QUESTION, UNCHECKABLE_CLASSES, check_declarations
from fedclust.core.site_interface import View

if TYPE_CHECKING:
    from fedclust.core.effects import Handler

OWN_PACKAGE = __name__.partition(".")[0]


def handler_package(answer: Callable[..., Any]) -> str:
    """The package that a handler's code is from."""
    return answer.__module__.partition(".")[0]


def handler_name(answer: Callable[..., Any]) -> str:
    """The module's and the function's own name; outside fedclust the whole path, so that no name is taken for ours."""
    module = answer.__module__
    ours = handler_package(answer) == OWN_PACKAGE
    return f"{module.rpartition('.')[2] if ours else module}.{answer.__name__}"


def check_handler(made: Handler[Any, Any]) -> None:
    """Refuse a question whose answer or message says less than a site must know."""
    check_declarations(made.release)
    _check_message(made)
    if made.package == OWN_PACKAGE:
        return
    schema = made.release.schema()
    if unseen := sorted(made.classes & UNCHECKABLE_CLASSES):
        raise TypeError(f"{made.name} releases {unseen[0]}, which a site cannot look into; only fedclust's own may")
    if any(d.kind == "points" and d.combine != "each" for d in schema.values()):
        raise TypeError(f"{made.name} releases points in a sum, where a site cannot check them; use points()")
    if "points" in made.classes and (made.members is None or not issubclass(made.message, ViewedQuestion)):
        raise TypeError(f"{made.name} releases points; give members=, and a message with a view, to check them by")
    sums = [d for d in schema.values() if d.combine == "sum" and d.kind in ("sums", "weights")]
    if sums and made.row_weights is None and not any(d.cells for d in schema.values()):
        raise TypeError(f"{made.name} releases sums; say how many rows are behind them by cells=True or row_weights=")
    if made.classes & {"facts", "marks"} and not made.max_distinct:
        raise TypeError(f"{made.name} releases facts; say by max_distinct= how many different ones a study needs")


def _check_message(made: Handler[Any, Any]) -> None:
    """Refuse a message that holds a view without saying so by its type, or a floor that no question names."""
    hints = typing.get_type_hints(made.message)
    if issubclass(made.message, ViewedQuestion):
        if hints.get("view") is not View:
            raise TypeError(f"{made.name}: a ViewedQuestion has a field `view: View`")
    elif View in hints.values() and not issubclass(made.message, GapsQuestion):
        raise TypeError(f"{made.name}: a message with a view is a ViewedQuestion, or says how gaps are read")
    noisy = made.release.schema() if issubclass(made.release, Noisy) else {}
    if ("noisy" in made.classes or noisy) and (made.classes != {"noisy"} or list(noisy) != ["sums"]):
        raise TypeError(f"{made.name}: an answer under noise is a Noisy with one field, sums")
    if bool(noisy) != issubclass(made.message, PricedQuestion) or (Price in hints.values() and not noisy):
        raise TypeError(f"{made.name}: answers under noise, and no others, are asked for by a PricedQuestion")
    floors = {d.floor for d in made.release.schema().values() if d.kind == "points"}
    if FLOOR_FROM_QUESTION in floors and not issubclass(made.message, FlooredQuestion):
        raise TypeError(f"{made.name}: the floor of its points is the question's, so the message is a FlooredQuestion")
