"""Checks what a handler declares; a handler that declares too little for a site to judge cannot be imported."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from fedclust.core.noise_price import Noisy, Price, PricedQuestion
from fedclust.core.question_types import FlooredQuestion, GapsQuestion, ViewedQuestion
from fedclust.core.release import (
    COLUMNS,
    FLOOR_FROM_QUESTION,
    MAX_ROWS,
    UNCHECKABLE_CLASSES,
    Disclosure,
    Release,
    check_declarations,
)
from fedclust.core.site_interface import View

if TYPE_CHECKING:
    from fedclust.core.effects import Handler

OWN_PACKAGE = __name__.partition(".")[0]
OWN_FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class _PlainRelease(Release):
    """An answer that only declares fields: what Python and `dataclass` add to such a class."""


_PLAIN_MEMBERS = frozenset(vars(_PlainRelease)) | {
    "_schema",
    "__annotations__",
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__static_attributes__",
    "__firstlineno__",
    "__replace__",
    "__weakref__",
}


def handler_package(answer: Callable[..., Any]) -> str:
    """Return the package that contains a handler's code.

    What belongs to fedclust is decided by the file that the code comes from: a module's name can be assigned.
    """
    if not isinstance(answer, FunctionType):
        raise TypeError("a handler must be a plain function with the arguments (site, message)")
    for name in (answer.__module__, answer.__name__):
        if type(name) is not str:  # a subclass may compare and print as it likes
            raise TypeError(f"a handler's module and name must be plain strings, not {type(name).__name__}")
    package = answer.__module__.partition(".")[0]
    ours = OWN_FOLDER in Path(answer.__code__.co_filename).resolve().parents
    if ours != (package == OWN_PACKAGE):
        raise TypeError(
            f"{answer.__module__}.{answer.__name__} does not come from the file of the module that it names; "
            "do not assign `__module__`"
        )
    return package


def handler_name(answer: Callable[..., Any]) -> str:
    """Return the module's and the function's name; outside fedclust the whole path, so that names cannot collide.

    A module outside any package has a path of one word, which must not be the name of a module of fedclust: the
    handlers of that module may be imported later.
    """
    module, function = answer.__module__, answer.__name__
    if handler_package(answer) == OWN_PACKAGE:
        return f"{module.rpartition('.')[2]}.{function}"
    if not function.isidentifier():
        raise TypeError(f"{module}.{function} is not a valid function name; do not assign `__name__`")
    if module in own_module_names():
        raise TypeError(
            f"{module}.{function} could be mistaken for a question of fedclust; move module {module} into a package"
        )
    return f"{module}.{function}"


@cache
def own_module_names() -> frozenset[str]:
    """Return the last part of the name of each module and package of fedclust, imported or not."""
    return frozenset(path.parent.name if path.stem == "__init__" else path.stem for path in OWN_FOLDER.rglob("*.py"))


def check_handler(made: Handler[Any, Any]) -> None:
    """Refuse a question whose answer or message declares less than a site must know."""
    _check_place(made.answer, made.package)
    if made.package == OWN_PACKAGE:
        _check_own_code(made.answer)
        check_contract_is_given(made)
    check_declarations(made.release)
    _check_message(made)
    if made.package == OWN_PACKAGE:
        return
    schema = made.schema
    _check_foreign_release(made)
    if unseen := sorted(made.classes & UNCHECKABLE_CLASSES):
        raise TypeError(
            f"{made.name} releases {unseen[0]}, which a site cannot inspect; only fedclust's own "
            "handlers may release it"
        )
    if made.reads == "places" or made.before_alignment:
        raise TypeError(
            f"{made.name} may not declare reads='places' or before_alignment: both switch off rules that protect rows, "
            "and a site switches them off only for fedclust's own handlers"
        )
    if any(d.kind == "counts" and d.combine == "each" and not d.cells for d in schema.values()):
        raise TypeError(
            f"{made.name} releases counts with hide_small=False, so a count of a single row could leave the site; "
            "declare them with hide_small=True"
        )
    _check_points(made)
    sums = [d for d in schema.values() if d.combine == "sum" and d.kind in ("sums", "weights")]
    if sums and made.row_weights is None and not any(d.cells for d in schema.values()):
        raise TypeError(
            f"{made.name} releases sums; use cells=True or row_weights= to declare how many rows contribute to each sum"
        )
    if made.classes & {"facts", "marks"} and not made.max_distinct:
        raise TypeError(
            f"{made.name} releases facts; use max_distinct= to declare how many different answers a study may need"
        )
    for name, declared in schema.items():
        if declared.combine == "sum" or (declared.kind == "counts" and "points" not in made.classes):
            _check_form(made, name, declared)


def check_contract_is_given(made: Handler[Any, Any]) -> None:
    """Refuse a question of fedclust that does not say what a study may ask of it."""
    if made.contract is None:
        raise TypeError(
            f"{made.name} has no contract, so any study could ask anything of it; pass contract= to @handler"
        )


def _check_place(answer: Callable[..., Any], package: str) -> None:
    """Refuse a handler that does not come from the files of the package that it names.

    A site's policy trusts packages by name.
    """
    module = sys.modules.get(answer.__module__)
    top = sys.modules.get(package)
    spec = None if top is None else top.__spec__
    inside = module is not None and vars(module) is answer.__globals__
    if inside and spec is not None and (spec.origin is not None or spec.submodule_search_locations is not None):
        file = Path(answer.__code__.co_filename).resolve()
        folders = [Path(one).resolve() for one in spec.submodule_search_locations or ()]
        origin = () if spec.origin is None else (Path(spec.origin).resolve(),)
        inside = file in origin or any(folder in file.parents for folder in folders)
    if not inside:
        raise TypeError(
            f"{answer.__module__}.{answer.__name__} is not defined in the module that it names; do not assign "
            "`__module__`"
        )


def _check_points(made: Handler[Any, Any]) -> None:
    """Refuse points of another package that a site could not compute again from the weights of the rows."""
    schema = made.schema
    if any(d.kind == "points" and d.combine != "each" for d in schema.values()):
        raise TypeError(f"{made.name} releases points in a sum, where a site cannot check them; use points()")
    if "points" in made.classes and (made.members is None or not issubclass(made.message, ViewedQuestion)):
        raise TypeError(
            f"{made.name} releases points; so that a site can check them, pass members= to @handler, and use a message "
            "with a view"
        )
    if sum(d.kind == "points" for d in schema.values()) > 1:
        raise TypeError(
            f"{made.name} releases points in two fields, and a site checks each field on its own; put them in one"
        )


def _check_own_code(answer: Callable[..., Any]) -> None:
    """Refuse a handler that is not, word for word, a function that its file in this package decorates.

    The file that code names and the module that it names can both be assigned. And a function of this package that
    another one registers, under its own name or a new one, would come with other declarations.
    """
    code: CodeType = answer.__code__
    spec = PathFinder.find_spec(answer.__module__, [str(Path(code.co_filename).resolve().parent)])
    found = None if spec is None or spec.origin is None else _compiled_module(answer.__module__, spec.origin)
    known = found is not None and any(code == one for one in found.co_consts if isinstance(one, CodeType))
    taken = answer.__name__ in answer.__globals__  # a decorator runs before the name is there
    if not known or taken or code.co_name != answer.__name__:
        raise TypeError(
            f"{answer.__module__}.{answer.__name__} is not a function that a module of fedclust defines as a question"
        )


@cache
def _compiled_module(name: str, file: str) -> CodeType | None:
    return SourceFileLoader(name, file).get_code(name)


def _check_foreign_release(made: Handler[Any, Any]) -> None:
    """Refuse an answer type of another package that could behave differently from what it declares.

    A site judges and sends what such an answer encodes to. Methods that replace those of `Release` or of a dataclass
    would let the type answer for itself.
    """
    extra = sorted(set(vars(made.release)) - _PLAIN_MEMBERS - set(made.schema))
    if made.release.__bases__ != (Release,) or extra:
        what = f"defines {extra[0]}" if extra else "does not inherit from Release alone"
        raise TypeError(f"{made.name}: the answer type {made.release.__name__} {what}; it may only declare fields")
    for name, declared in made.schema.items():
        if declared.kind == "facts" and not 0 <= declared.most <= MAX_ROWS:
            raise TypeError(
                f"{made.name}.{name} needs a bound: declare facts(..., most=N) with N of at most {MAX_ROWS:.0f}"
            )


def _check_form(made: Handler[Any, Any], name: str, declared: Disclosure) -> None:
    """Refuse an array whose shape or units do not follow from the question: they travel next to masked numbers
    without a mask.
    """
    fields = typing.get_type_hints(made.message)
    if declared.axes is None:
        raise TypeError(
            f"{made.name}.{name} must declare how long its axes are, such as axes=('centers', COLUMNS), or axes=() for "
            "a single number"
        )
    for axis in declared.axes:
        is_length = type(axis) is int and axis >= 1
        is_field = type(axis) is str and (axis == COLUMNS or axis in fields)
        if not (is_length or is_field):
            raise TypeError(
                f"{made.name}.{name} has the axis {axis!r}; use a whole number of at least 1, COLUMNS, or the name of "
                f"a field of {made.message.__name__}"
            )
    if declared.units and declared.units not in fields:
        raise TypeError(f"{made.name}.{name} takes its units from {declared.units!r}; name a field of the message")


def _check_message(made: Handler[Any, Any]) -> None:
    """Refuse a message that holds a view or a floor without declaring it by its type."""
    hints = typing.get_type_hints(made.message)
    if made.package != OWN_PACKAGE and any("__post_init__" in vars(one) for one in made.message.__mro__):
        raise TypeError(
            f"{made.name}: the message {made.message.__name__} runs code when a site reads it; remove `__post_init__`"
        )
    if issubclass(made.message, ViewedQuestion) and issubclass(made.message, GapsQuestion):
        raise TypeError(
            f"{made.name}: the view of a ViewedQuestion already says how missing values are handled; do not "
            "inherit from GapsQuestion too"
        )
    if issubclass(made.message, ViewedQuestion):
        if hints.get("view") is not View:
            raise TypeError(f"{made.name}: a ViewedQuestion needs a field `view: View`")
    elif View in hints.values() and not issubclass(made.message, GapsQuestion):
        raise TypeError(
            f"{made.name}: a message with a view must be a ViewedQuestion or a GapsQuestion, which declares how "
            "missing values are handled"
        )
    noisy = made.schema if issubclass(made.release, Noisy) else {}
    if ("noisy" in made.classes or noisy) and (made.classes != {"noisy"} or list(noisy) != ["sums"]):
        raise TypeError(f"{made.name}: an answer with noise must inherit from Noisy and have the single field `sums`")
    if bool(noisy) != issubclass(made.message, PricedQuestion) or (Price in hints.values() and not noisy):
        raise TypeError(
            f"{made.name}: a PricedQuestion must request an answer with noise, and only a PricedQuestion may "
            "request one"
        )
    floors = {d.floor for d in made.schema.values() if d.kind == "points"}
    if FLOOR_FROM_QUESTION in floors and not issubclass(made.message, FlooredQuestion):
        raise TypeError(
            f"{made.name}: the question sets the floor of its points (the minimum number of rows for each "
            "point), so the message must be a FlooredQuestion"
        )
