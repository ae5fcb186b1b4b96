"""Writes the table of everything that may leave a site, from what the code declares; `make docs` runs it."""

import re
from pathlib import Path

from fedclust.app.serve import know_questions
from fedclust.core.effects import HANDLERS
from fedclust.core.release import Disclosure

PAGE = Path(__file__).with_name("what-leaves-a-site.md")
HEAD = "| question | field | leaves as | what it is |\n|---|---|---|---|\n"
MARKED = re.compile(r"(?<=<!-- answers -->\n).*?(?=<!-- end of answers -->)", flags=re.DOTALL)


def answers() -> str:
    """One line for each field of each answer, by question."""
    know_questions()
    ours = {name: h for name, h in sorted(HANDLERS.items()) if h.answer.__module__.startswith("fedclust.")}
    lines = [line for name, handler in ours.items() for line in _lines(name, handler.release.schema())]
    return HEAD + "".join(f"| {line} |\n" for line in lines)


def _lines(name: str, schema: dict[str, Disclosure]) -> list[str]:
    if not schema:
        return [f"`{name}` | | | nothing: the site did as asked"]
    return [f"`{name}` | `{field}` | {_way(d)} | {d.why.replace('|', chr(92) + '|')}" for field, d in schema.items()]


def _way(disclosure: Disclosure) -> str:
    if disclosure.combine == "sum":
        return "sum under noise" if disclosure.kind == "noisy" else "sum"
    if disclosure.kind == "noisy":
        return "shown, under noise"
    return "shown, small counts hidden" if disclosure.cells else "shown"


def renewed(page: str) -> str:
    """The page with the table as the code has it."""
    return MARKED.sub(lambda _: answers(), page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
