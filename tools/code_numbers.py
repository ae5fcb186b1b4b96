"""Print the size, naming and contract figures of one or more Python source trees as a Markdown table."""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

DEFAULT_TREE = Path(__file__).resolve().parent.parent / "src" / "fedclust"
MAX_MODULES_PER_NAME = 5
MODEL_NAMES = frozenset({"model", "fitted"})
CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]+")
NOUNS_AND_VERBS = """
bed bleed breed creed embed exceed feed greed need proceed red reed seed shed shred sled speed succeed wed weed
anything bearing binding bring building ceiling cling ding embedding encoding everything fling heading king mapping
meaning morning nothing padding ping ranking ring rounding setting sibling sing sling something spacing spelling
spring sting string swing thing timing warning wing
"""
# Left out: forms that equal the verb's base form (put, read, cut, split, set, shut), and common nouns (bound).
IRREGULAR_PARTICIPLES = """
awoken beaten become begun began bent bitten blown born borne bought broken brought built burnt caught chosen crept
dealt done drawn driven drunk dug eaten fallen fed felt flown forbidden forgotten forgiven fought found frozen given
gone grown had heard held hidden hung kept known laid learnt led left lent lost made meant met mistaken overwritten
paid proven ridden risen rewritten said seen sent sewn shaken shone shorn shot shown slept sold sought sown spelt
spent spilt spoilt spoken spun stolen stood struck stuck sung sunk sworn swept swollen swung taken taught thought
thrown told torn understood undone unknown unseen unspent unwritten withdrawn withheld woken won worn woven written
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its path below the tree, its number of lines and its syntax tree."""

    path: Path
    lines: int
    syntax: ast.Module


@dataclass(frozen=True)
class NamedFunction:
    """A function or method, however deeply nested, with the module that defines it."""

    module: Path
    node: Function

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def word(self) -> str:
        """The name without leading and trailing underscores."""
        return self.name.strip("_")

    @property
    def is_dunder(self) -> bool:
        return self.name.startswith("__") and self.name.endswith("__")

    @property
    def lines(self) -> int:
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    @property
    def is_one_word(self) -> bool:
        return "_" not in self.word

    @property
    def is_participle(self) -> bool:
        return self.is_one_word and is_participle(self.word)

    def __str__(self) -> str:
        return f"{self.module}:{self.node.lineno} {self.name}"


class Tree:
    """A package's source files, parsed once; test files (`test_*.py`, folders called `tests`) are left out."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        if not self.root.is_dir():
            raise SystemExit(f"{root} is not a folder of Python sources")
        paths = [path for path in sorted(self.root.rglob("*.py")) if is_counted(path.relative_to(self.root))]
        self.modules = [read_module(path, self.root) for path in paths]
        if not self.modules:
            raise SystemExit(f"{root} holds no Python module")

    @property
    def name(self) -> str:
        return self.root.name

    @cached_property
    def lines(self) -> int:
        return sum(module.lines for module in self.modules)

    @cached_property
    def functions(self) -> list[NamedFunction]:
        return [
            NamedFunction(module.path, node)
            for module in self.modules
            for node in ast.walk(module.syntax)
            if isinstance(node, Function)
        ]

    @cached_property
    def named_functions(self) -> list[NamedFunction]:
        """Functions whose authors chose the name: all but the dunder methods."""
        return [function for function in self.functions if not function.is_dunder]


def is_counted(path: Path) -> bool:
    return not path.name.startswith("test_") and "tests" not in path.parts and "__pycache__" not in path.parts


def read_module(path: Path, root: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(root), len(text.splitlines()), ast.parse(text, str(path)))


def is_participle(word: str) -> bool:
    """Whether a lower-case word is a participle or a past tense by its form.

    >>> [is_participle(word) for word in ("opened", "told", "seed", "setting", "read")]
    [True, True, False, False, False]
    """
    if word in NOUNS_AND_VERBS.split():
        return False
    return word.endswith(("ed", "ing")) or word in IRREGULAR_PARTICIPLES.split()


def find_percentile_95(values: Iterable[int]) -> int:
    ordered = sorted(values)
    return ordered[int(0.95 * len(ordered))] if ordered else 0


def count_decisions(node: ast.AST) -> int:
    """The decisions that one syntax node adds to the cyclomatic complexity of the function around it."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, ast.match_case):
        return 0 if isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None else 1
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return 1 + bool(node.orelse)
    return int(isinstance(node, ast.If | ast.IfExp | ast.ExceptHandler | ast.Assert))


def measure_complexity(function: Function) -> int:
    """1 + the function's decisions, those of functions nested in it included."""
    return 1 + sum(count_decisions(node) for node in ast.walk(function))


def format_share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} ({part} of {whole})" if whole else "-"


def show_modules(tree: Tree) -> str:
    return f"{len(tree.modules):,}"


def show_module_lines(tree: Tree) -> str:
    lines = [module.lines for module in tree.modules]
    return f"{statistics.median(lines):,.0f} / {find_percentile_95(lines):,} / {max(lines):,}"


def show_function_lines(tree: Tree) -> str:
    lines = [function.lines for function in tree.functions]
    return f"{find_percentile_95(lines):,} / {max(lines, default=0):,}"


def show_complexity(tree: Tree) -> str:
    values = [measure_complexity(function.node) for function in tree.functions]
    return f"{statistics.fmean(values):.1f}" if values else "-"


def list_attribute_probes(tree: Tree) -> list[str]:
    return [
        f"{module.path}:{node.lineno} {ast.unparse(node)}"
        for module in tree.modules
        for node in ast.walk(module.syntax)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}
    ]


def show_attribute_probes(tree: Tree) -> str:
    count = len(list_attribute_probes(tree))
    return f"{1000 * count / tree.lines:.1f} ({count} in {tree.lines:,})"


def list_top_level_names(tree: Tree) -> list[str]:
    names = {module.path.parts[0].removesuffix(".py") for module in tree.modules}
    return sorted(name for name in names if not name.startswith("_"))


def find_layers(tree: Tree) -> list[str]:
    """The longest `layers` list of the nearest pyproject.toml that names this package as a root, or nothing."""
    for folder in tree.root.parents:
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        linter = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("importlinter", {})
        if tree.name not in [linter.get("root_package"), *linter.get("root_packages", [])]:
            return []
        return max((contract.get("layers", []) for contract in linter.get("contracts", [])), key=len, default=[])
    return []


def show_layers(tree: Tree) -> str:
    return str(len(find_layers(tree)) or "-")


def list_annotations(syntax: ast.AST) -> Iterator[tuple[int, str, ast.expr]]:
    """Line, name and annotation of every annotated parameter, variable, field and attribute."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.arg) and node.annotation:
            yield node.lineno, node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.lineno, node.target.id, node.annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            yield node.lineno, node.target.attr, node.annotation


def allows_anything(annotation: ast.expr) -> bool:
    """Whether an annotation is `Any`, or a union with it."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return allows_anything(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.BinOp):
        return allows_anything(annotation.left) or allows_anything(annotation.right)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Optional"):
        return allows_anything(annotation.slice)
    return ast.unparse(annotation) in {"Any", "typing.Any", "t.Any"}


def list_untyped_models(tree: Tree) -> list[str]:
    return [
        f"{module.path}:{line} {name}: {ast.unparse(annotation)}"
        for module in tree.modules
        for line, name, annotation in list_annotations(module.syntax)
        if name.strip("_") in MODEL_NAMES and allows_anything(annotation)
    ]


def list_one_word_functions(tree: Tree) -> list[str]:
    return [str(function) for function in tree.named_functions if function.is_one_word]


def show_one_word_functions(tree: Tree) -> str:
    return format_share(len(list_one_word_functions(tree)), len(tree.named_functions))


def list_participles(tree: Tree) -> list[str]:
    return [str(function) for function in tree.named_functions if function.is_participle]


def show_participles(tree: Tree) -> str:
    return format_share(len(list_participles(tree)), len(tree.named_functions))


def list_spread_names(tree: Tree) -> list[str]:
    modules: defaultdict[str, set[Path]] = defaultdict(set)
    for function in tree.named_functions:
        modules[function.name].add(function.module)
    spread = [(len(paths), name) for name, paths in modules.items() if len(paths) > MAX_MODULES_PER_NAME]
    return [f"{name} ({count} modules)" for count, name in sorted(spread, key=lambda pair: (-pair[0], pair[1]))]


def list_targets(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    """The constants that an assignment binds, each with the source of its value."""
    if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id):
        yield target.id, ast.unparse(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, own in zip(target.elts, value.elts, strict=True):
            yield from list_targets(one, own)
    elif isinstance(target, ast.Tuple):
        for place, one in enumerate(target.elts):
            if isinstance(one, ast.Name) and CONSTANT.fullmatch(one.id):
                yield one.id, f"({ast.unparse(value)})[{place}]"


def list_constants(module: Module) -> Iterator[tuple[str, str]]:
    for statement in module.syntax.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from list_targets(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            yield from list_targets(statement.target, statement.value)


def list_ambiguous_constants(tree: Tree) -> list[str]:
    values: defaultdict[str, dict[Path, str]] = defaultdict(dict)
    for module in tree.modules:
        for name, value in list_constants(module):
            values[name][module.path] = value
    ambiguous = {name: found for name, found in values.items() if len(set(found.values())) > 1}
    ordered = sorted(ambiguous.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{name} ({len(found)} modules, {len(set(found.values()))} values)" for name, found in ordered]


def list_repeated_file_names(tree: Tree) -> list[str]:
    files = Counter(module.path.name for module in tree.modules if module.path.name != "__init__.py")
    return [f"{name} ({count} files)" for name, count in sorted(files.items()) if count > 1]


def show_repeated_file_names(tree: Tree) -> str:
    files = {module.path.name for module in tree.modules if module.path.name != "__init__.py"}
    return f"{len(list_repeated_file_names(tree))} of {len(files)}"


def list_undocumented_modules(tree: Tree) -> list[str]:
    return [str(module.path) for module in tree.modules if not ast.get_docstring(module.syntax)]


@dataclass(frozen=True)
class Figure:
    """One row of the table: its label, its definition, its value for a tree and, where there are any, its offenders."""

    label: str
    definition: str
    show: Callable[[Tree], str] | None = None
    find_offenders: Callable[[Tree], list[str]] | None = None

    def format_value(self, tree: Tree) -> str:
        if self.show:
            return self.show(tree)
        return str(len(self.find_offenders(tree))) if self.find_offenders else "-"


FIGURES = (
    Figure("modules", "files *.py, tests left out", show_modules),
    Figure(
        "module lines, median / p95 / max", "all lines of a file, blank ones and comments included", show_module_lines
    ),
    Figure("function lines, p95 / max", "from `def` to the last line, docstring included", show_function_lines),
    Figure(
        "cyclomatic complexity, mean",
        "1 + if, elif, conditional expressions, loops and their else, except, assert, match cases but the default, "
        "boolean operators, comprehensions and their ifs; nested functions count in the outer one, too",
        show_complexity,
    ),
    Figure(
        "`getattr` + `hasattr` per 1,000 lines",
        "calls by these two names",
        show_attribute_probes,
        list_attribute_probes,
    ),
    Figure(
        "top-level names",
        "modules and packages directly below the package that do not begin with an underscore",
        find_offenders=list_top_level_names,
    ),
    Figure("layers", "entries of the longest `layers` list of the import contracts in pyproject.toml", show_layers),
    Figure(
        "`model: Any`",
        "parameters, variables, fields and attributes named model or fitted (underscores stripped) whose annotation "
        "is Any or a union with it",
        find_offenders=list_untyped_models,
    ),
    Figure(
        "functions named by one word",
        "functions and methods whose name has no underscore inside; dunder methods are not counted, leading and "
        "trailing underscores are stripped",
        show_one_word_functions,
        list_one_word_functions,
    ),
    Figure(
        "functions named by a bare participle",
        "one-word names that end in -ed or -ing, or are irregular participles or past tenses (told, held); not nouns "
        "and verbs such as seed, ring, setting; not forms that equal the verb's base form (read, put, split)",
        show_participles,
        list_participles,
    ),
    Figure(
        f"function names in more than {MAX_MODULES_PER_NAME} modules",
        "names of functions and methods as written, dunder methods left out",
        find_offenders=list_spread_names,
    ),
    Figure(
        "constant names with several values",
        "module-level UPPER_CASE names of two letters or more, assigned in several modules from different expressions",
        find_offenders=list_ambiguous_constants,
    ),
    Figure(
        "file names used more than once",
        "of all different file names; __init__.py is not counted",
        show_repeated_file_names,
        list_repeated_file_names,
    ),
    Figure(
        "modules without a docstring", "__init__.py included, empty or not", find_offenders=list_undocumented_modules
    ),
)


def format_table(trees: Sequence[Tree]) -> str:
    rows = [["", *(tree.name for tree in trees)], ["---"] * (1 + len(trees))]
    rows += [[figure.label, *(figure.format_value(tree) for tree in trees)] for figure in FIGURES]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def format_offenders(tree: Tree) -> str:
    parts = []
    for figure in FIGURES:
        if figure.find_offenders:
            found = figure.find_offenders(tree)
            heading = f"\n## {tree.name}: {figure.label} ({len(found)})\n"
            parts.append("\n".join([heading, *(f"- {one}" for one in found)]))
    return "\n".join(parts)


def build_parser() -> argparse.ArgumentParser:
    definitions = "\n".join(f"  {figure.label}:\n      {figure.definition}" for figure in FIGURES)
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"definitions:\n{definitions}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tree", nargs="?", type=Path, default=DEFAULT_TREE, metavar="TREE", help="a package's folder (src/fedclust)"
    )
    parser.add_argument(
        "--against",
        nargs="+",
        action="extend",
        type=Path,
        default=[],
        metavar="PATH",
        help="more packages to compare with, one column each; give TREE first, or none",
    )
    parser.add_argument("--names", action="store_true", help="list what each count of TREE consists of")
    return parser


def main() -> None:
    options = build_parser().parse_args()
    tree = Tree(options.tree)
    print(format_table([tree, *map(Tree, options.against)]))
    if options.names:
        print(format_offenders(tree))


if __name__ == "__main__":
    main()
