"""HTML and SVG elements that escape every text, unless it is markup already."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID_ELEMENTS = frozenset({"meta", "br", "hr", "path", "line", "rect", "circle", "ellipse"})


class Markup(str):
    """Text that is markup and stays as it is."""

    __slots__ = ()


Node = str | None | Iterable["Node"]


def escape_node(node: Node) -> Markup:
    """Return a node and its content as markup; strings are escaped, None is empty.

    >>> escape_node(["<b>", Markup("<br>"), None])
    '&lt;b&gt;<br>'
    """
    if node is None:
        return Markup("")
    if isinstance(node, Markup):
        return node
    if isinstance(node, str):
        return Markup(html.escape(node))
    return Markup("".join(escape_node(part) for part in node))


def tag(name: str, /, *content: Node, **attributes: str | float | None) -> Markup:
    """Return an element. Attribute names lose a trailing '_' and get '-' for '_'; a value of None omits the attribute.

    >>> tag("p", "a < b", class_="note", aria_label='"x"')
    '<p class="note" aria-label="&quot;x&quot;">a &lt; b</p>'
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    inner = "".join(f' {key}="{html.escape(_format_attribute(value))}"' for key, value in given.items())
    if name in VOID_ELEMENTS:
        return Markup(f"<{name}{inner}>" if name in {"meta", "br", "hr"} else f"<{name}{inner}/>")
    return Markup(f"<{name}{inner}>{escape_node(content)}</{name}>")


def _format_attribute(value: str | float) -> str:
    """Format numbers with as many digits as a drawing needs."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def table(head: Iterable[Node], rows: Iterable[Iterable[Node]], *, caption: str, class_: str = "") -> Markup:
    """Return a table whose first row and first column are headers; a wide table scrolls on its own.

    The cells of a row are text, or markup that is `th` or `td` already.
    """
    top = tag("tr", [tag("th", cell, scope="col") for cell in head])
    body = [tag("tr", [_cell(cell, first=at == 0) for at, cell in enumerate(row)]) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", body), class_=class_ or None)
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: Node, *, first: bool) -> Node:
    if isinstance(cell, Markup) and cell.startswith(("<td", "<th")):
        return cell
    return tag("th", cell, scope="row") if first else tag("td", cell)
