"""The reproduction page shows where we lose, how many numbers agree, and each table, printed and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from fedclust.report.markup import Markup, Node, table, tag
from fedclust.report.wording import format_number, use_minus_sign
from papers.reproduction import figures
from papers.reproduction.published import place
from papers.reproduction.published import table as printed_table

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
KEY = {
    "A cell": "shows the printed number and, below it, our mean with its difference from the printed number. If the "
    "two agree only within the interval of our repeats, and not by digits, it also shows half the width of this "
    "interval.",
    "Green": "cells agree with the paper, and red cells do not. We do not expect to reproduce pale cells; the list "
    "below says why.",
    "XC, S1, S2, PE, WA, PH, RI, ST": "are xclara, S-set 1, S-set 2, pendigits, waveform, phoneme, rice and satimage.",
    "LLF, GDF, C2F": "are the lossless run, averaged gradients, and averaged local runs.",
    "Displacement": "is the distance between the centres and those of the pooled run.",
    "A mark": "(lost, misprint, contradicted, repeated, other code, other order) says why we do not expect to "
    "reproduce a number. Lost means that it is missing from the text of the paper.",
}
STYLE = """
td.yes { background: color-mix(in srgb, #1b7a48 18%, var(--card)) }
td.no { background: color-mix(in srgb, #b93a34 20%, var(--card)) }
td.out, td.unmeasured { color: var(--soft) }
td small { display: block }
.told th, .told td { text-align: left }
nav ul { flex-wrap: wrap; font-size: .85rem }
nav { position: static }
.flat { columns: 2 24rem }
.flat figure { break-inside: avoid }
"""


def page(whole: Mapping[str, Any], times: Mapping[str, Any]) -> str:
    """The page of a run."""
    style = files("fedclust.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", "Five papers, computed again (fedclust)"),
        Markup('<link rel="icon" href="data:,">'),
        tag("style", Markup(style + figures.STYLE + STYLE)),
    )
    entries = whole["experiments"]
    links = [tag("li", tag("a", entry["name"], href=f"#{entry['name']}")) for entry in entries]
    body = tag(
        "body",
        tag("header", tag("p", "make reproduce", class_="kicker"), tag("h1", "Five papers, computed again")),
        tag("nav", tag("ul", links), aria_label="Contents"),
        tag(
            "main",
            _losses(whole),
            _agreement(whole),
            _absent(whole),
            _key(),
            _held(entries),
            [_experiment(entry, times.get(entry["name"], {})) for entry in entries],
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _losses(whole: Mapping[str, Any]) -> Markup:
    rows = [
        [
            own["experiment"],
            own["row"],
            own["method"],
            format_number(own["value"]),
            f"{own['best printed']}{f' ({own_mark})' if (own_mark := own['mark']) else ''}",
        ]
        for own in whole["where we lose"]
    ]
    head = ["table", "row", "our method", "ours", "best printed"]
    told = table(head, rows, caption="Rows where a printed number is better", class_="told")
    return tag(
        "section",
        tag("h2", "Where we lose"),
        told if rows else tag("p", "There is no such row."),
        id="losses",
    )


def _agreement(whole: Mapping[str, Any]) -> Markup:
    rows = []
    for name, own in whole["papers"].items():
        part = f"{own['agree'] / own['measured']:.1%}" if own["measured"] else "-"
        rows.append(
            [
                f"{name}: {own['title']}",
                str(own["cells"]),
                str(own["held"]),
                str(own["measured"]),
                f"{own['agree']} ({part})",
                str(own["agree by digits"]),
                f"{own['not held, agree']} of {own['not held, measured']}",
                f"{own['claims that hold']} of {own['claims']}",
            ]
        )
    head = [
        "paper",
        "numbers",
        "expected to be reproducible",
        "measured",
        "agree",
        "by digits",
        "not expected, but agree",
        "claims that hold",
    ]
    return tag(
        "section",
        tag("h2", "Agreement"),
        tag("p", whole["rule"]),
        table(head, rows, caption="Printed numbers that we reproduce"),
        id="agreement",
    )


def _absent(whole: Mapping[str, Any]) -> Node:
    names = ", ".join(whole["not computed"])
    return tag("p", f"Not computed, and missing from the counts: {names}.", class_="absent") if names else None


def _key() -> Markup:
    lines = [tag("p", tag("strong", word), " ", meaning) for word, meaning in KEY.items()]
    return tag("section", tag("h2", "How to read the tables"), lines, id="key")


def _held(entries: Sequence[Mapping[str, Any]]) -> Markup:
    rows = []
    for entry in entries:
        held = sum(cell["held"] for cell in entry["cells"])
        out: dict[tuple[str, str], int] = {}
        for cell in entry["cells"]:
            if not cell["held"]:
                key = cell.get("mark", "lost"), cell.get("reason", "")
                out[key] = out.get(key, 0) + 1
        told = "; ".join(f"{count} {mark}: {reason}" for (mark, reason), count in out.items())
        rows.append([tag("a", entry["name"], href=f"#{entry['name']}"), str(held), entry["held because"], told or "-"])
    return tag(
        "section",
        tag("h2", "What we expect to reproduce, and why"),
        table(
            ["table", "cells expected", "because", "cells not expected"], rows, caption="Cells by table", class_="told"
        ),
        id="held",
    )


def _experiment(entry: Mapping[str, Any], times: Mapping[str, Any]) -> Markup:
    cells = {cell["at"]: cell for cell in entry["cells"]}
    size = "in full" if entry["size"] == "full" else "with --quick: fewer repeats and sizes than in the paper"
    where = ", ".join(times.get("machines", ()))
    spent = f" {format_number(times['seconds'], 3)} CPU seconds on {where}." if where else ""
    wrong = [cell for cell in entry["cells"] if cell.get("agrees") is False and cell["held"]]
    return tag(
        "section",
        tag("h2", f"{entry['name']}: {entry['title']}"),
        tag("p", f"{entry['place']}. Run {size}.{spent}", class_="quiet"),
        [tag("p", note, class_="quiet") for note in entry["notes"]],
        [tag("p", f"{name}: {how}", class_="absent") for name, how in entry["absent"].items()],
        [_block(block, rows, columns, cells) for block, (rows, columns) in printed_table(entry["name"]).blocks.items()],
        _claims(entry["claims"]),
        _ours(entry["ours"]),
        _reasons(wrong),
        [
            table(own["head"], [[_shown(cell) for cell in row] for row in own["rows"]], caption=own["caption"])
            for own in entry["more"]
        ],
        tag(
            "div",
            [figures.drawn(own, f"{entry['name']}-{own['name']}") for own in entry["figures"]],
            class_="flat" if len(entry["figures"]) > 1 else None,
        ),
        id=entry["name"],
    )


def _shown(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else str(value)


def _block(name: str, rows: Sequence[str], columns: Sequence[str], cells: Mapping[str, Any]) -> Markup:
    lines = [[row, *(_cell(cells.get(place(name, row, column))) for column in columns)] for row in rows]
    return table(["", *columns], lines, caption=f"{name}: printed, measured, difference")


def _cell(cell: Mapping[str, Any] | None) -> Node:
    if cell is None:
        return ""
    printed = cell["printed"] or "lost"
    if "mean" not in cell:
        return tag("td", printed, tag("small", cell.get("mark", "not measured")), class_="unmeasured")
    told = format_number(cell["mean"])
    if cell["printed"] is not None:
        apart = f"{cell['difference']:+.2g}"
        told += f" ({use_minus_sign(apart)})"
        if cell["by"] == "interval":
            told += f", within ±{format_number(cell['half'], 2)}"
    way = "out" if not cell["held"] else "yes" if cell["agrees"] else "no"
    return tag("td", printed, tag("small", told), class_=way)


def _claims(claims: Sequence[Mapping[str, Any]]) -> Node:
    if not claims:
        return None
    words = {True: "holds", False: "does not hold", None: "not run"}
    rows = [
        [claim["text"], words[claim["holds"]], claim["measured"] + (f"; {claim['why']}" if "why" in claim else "")]
        for claim in claims
    ]
    return table(["claim", "", "measured"], rows, caption="Claims in words", class_="told")


def _ours(ours: Sequence[Mapping[str, Any]]) -> Node:
    if not ours:
        return None
    words = {True: "yes", False: "no", None: "nothing to compare with"}
    rows = [
        [
            own["row"],
            own["method"],
            format_number(own["value"]),
            (own["best printed"] or "lost") + (f" ({own['mark']})" if own.get("mark") else ""),
            words[own["holds"]],
        ]
        for own in ours
    ]
    head = ["row", "our method", "ours", "best printed", "at least as good"]
    return table(head, rows, caption="Our best method compared", class_="told")


def _reasons(wrong: Sequence[Mapping[str, Any]]) -> Node:
    if not wrong:
        return None
    rows = [[cell["at"], cell["printed"], format_number(cell["mean"]), cell["why"]] for cell in wrong]
    return table(["cell", "printed", "measured", "reason"], rows, caption="Where the numbers disagree", class_="told")
