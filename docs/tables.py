"""Writes the tables of the documentation that follow from the code: what may leave a site, and the map of packages."""

import ast
import re
import tomllib
from pathlib import Path

from fedclust.app.serve import import_questions
from fedclust.core.effects import HANDLERS
from fedclust.core.release import Disclosure

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("what-leaves-a-site.md")
HEAD = "| question | field | class | leaves as | what it is |\n|---|---|---|---|---|\n"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PACKAGES_HEAD = "| layer | package | what it holds |\n|---|---|---|\n"
PACKAGES = re.compile(r"(?<=<!-- packages -->\n).*?(?=<!-- end of packages -->)", flags=re.DOTALL)
MARKED = re.compile(r"(?<=<!-- answers -->\n).*?(?=<!-- end of answers -->)", flags=re.DOTALL)


def answers() -> str:
    """One line for each field of each answer, by question."""
    import_questions()
    ours = {name: h for name, h in sorted(HANDLERS.items()) if h.answer.__module__.startswith("fedclust.")}
    lines = [line for name, handler in ours.items() for line in _lines(name, handler.release.schema())]
    return HEAD + "".join(f"| {line} |\n" for line in lines)


def _lines(name: str, schema: dict[str, Disclosure]) -> list[str]:
    if not schema:
        return [f"`{name}` | | | | nothing except a confirmation"]
    return [
        f"`{name}` | `{field}` | {_class(d)} | {_way(d)} | {d.why.replace('|', chr(92) + '|')}"
        for field, d in schema.items()
    ]


def _class(disclosure: Disclosure) -> str:
    if disclosure.kind != "points":
        return disclosure.kind
    floor = "as asked" if disclosure.floor == "asked" else disclosure.floor
    return f"points, floor {floor}"


def _way(disclosure: Disclosure) -> str:
    if disclosure.combine == "sum":
        return "sum, with noise" if disclosure.kind == "noisy" else "sum"
    if disclosure.kind == "noisy":
        return "shown, with noise"
    if disclosure.combine == "messages":
        return "sealed to a site"
    return "shown, small counts hidden" if disclosure.cells else "shown"


def renewed(page: str) -> str:
    """The page with the table as the code has it."""
    return MARKED.sub(lambda _: answers(), page)


def packages() -> str:
    """One line for each package: its layer in the import contract, and the first sentence of its docstring."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "layers")
    placed = [(n, name) for n, layer in enumerate(layers, 1) for name in re.findall(r"fedclust\.(\w+)", layer)]
    lines = [f"| {number} | `{name}` | {_first_sentence(name)} |\n" for number, name in placed]
    return PACKAGES_HEAD + "".join(lines)


def _first_sentence(package: str) -> str:
    module = ROOT / "src" / "fedclust" / package / "__init__.py"
    words = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n\n")[0].split()
    return re.sub(r"(?<=\w\.) .*", "", " ".join(words)).replace("|", "\\|")


def write_packages(page: str) -> str:
    """CONTRIBUTING with the map as the import contract and the packages have it."""
    return PACKAGES.sub(lambda _: packages(), page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    CONTRIBUTING.write_text(write_packages(CONTRIBUTING.read_text(encoding="utf-8")), encoding="utf-8")
