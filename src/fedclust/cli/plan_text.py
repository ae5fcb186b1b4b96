"""How a site plan reads in a terminal of 100 columns: the verdict, the findings, and only then the details."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust.app.site_plan import PlannedQuestion, SitePlan

PLAN_WIDTH = 100  # columns of a terminal
MAX_SHOWN_NUMBERS = 6  # numbers of an answer that are printed
KNOWN_MARK = "*"  # next to questions that do not depend on any answer
PLAN_HEADINGS = ("question", "times", "at most", "field", "leaves as", "shape", "bytes")
NUMERIC_HEADINGS = frozenset({"times", "at most", "bytes"})


def format_plan(found: SitePlan) -> str:
    """Format the plan for a data steward: the verdict, the findings, every question and field, numbers, rules."""
    parts = [
        _format_verdict(found),
        _format_findings(found),
        _format_questions(found),
        _format_numbers(found, known=True),
        _format_numbers(found, known=False),
        _format_rules(found),
    ]
    return "\n\n".join(part for part in parts if part)


def _fill(text: str, first: str = "", rest: str | None = None) -> str:
    indent = first if rest is None else rest
    return textwrap.fill(
        text, PLAN_WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _format_verdict(found: SitePlan) -> str:
    from fedclust.app.plan_verdict import PlanVerdict

    head = f'Study "{found.study.name}" at site "{found.party}"'
    return f"{head}\n\n{_fill('VERDICT: ' + ' '.join(PlanVerdict(found).sentences()))}"


def _format_findings(found: SitePlan) -> str:
    from fedclust.app.plan_verdict import PlanVerdict

    findings = PlanVerdict(found).findings
    lines = [
        _fill(f"{finding.text} {finding.remedy}".rstrip(), f"  {finding.severity.upper():<8} ", " " * 11)
        for finding in findings
    ]
    return "\n".join(["FINDINGS", *(lines or ["  none"])])


def _format_questions(found: SitePlan) -> str:
    kinds, answers = len({question.name for question in found.questions}), sum(found.max_answers.values())
    columns = "1 column" if len(found.columns) == 1 else f"{len(found.columns)} columns"
    head = (
        f"This site: {found.rows:,} rows, {columns}, policy {found.policy.name}. The study: "
        f"{len(found.study.sites)} sites, aggregation {found.study.aggregation.mode}. In a run this site answers "
        f"{kinds} kinds of question and sends at most {answers:,} answers, {_max_bytes(found):,} bytes in total, not "
        "counting the exchange of keys."
    )
    lines = [PLAN_HEADINGS, *(line for question in found.questions for line in _question_lines(question))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(PLAN_HEADINGS))]
    rows = [_table_row(line, widths) for line in lines]
    foot = (
        "times: how often the question was asked in a rehearsal of all rounds, on this site's rows alone. at most: how "
        "often an approval would allow it. leaves as: 'masked' and 'unmasked' are sums over sites; 'own' is this "
        "site's own answer; 'sealed' is a message that only another site can read. bytes: the size of one answer. "
        f"{KNOWN_MARK}: the question does not depend on any answer."
    )
    return "\n".join(["DETAILS", _fill(head), "", *rows, _fill(foot)])


def _table_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = [
        cell.rjust(width) if heading in NUMERIC_HEADINGS else cell.ljust(width)
        for cell, width, heading in zip(cells, widths, PLAN_HEADINGS, strict=True)
    ]
    return " ".join(placed).rstrip()


def _question_lines(question: PlannedQuestion) -> list[tuple[str, ...]]:
    from fedclust.core.effects import HANDLERS

    name = f"{question.name}{KNOWN_MARK if question.is_known else ''}"
    first = (name, f"{question.times:,}", f"{question.max_answers:,}")
    size = f"{question.size:,}" if question.size else ""
    lines: list[tuple[str, ...]] = []
    for field, declared in HANDLERS[question.name].schema.items():
        shape = _format_shape(question.release and question.release.field_value(field))
        leaves = _how_it_leaves(declared.combine, masked=question.is_masked)
        lines.append((*(first if not lines else ("", "", "")), field, leaves, shape, "" if lines else size))
    if not lines:
        lines.append((*first, "(nothing)", "", "", size))
    if question.code is not None:
        lines.append((f"  {_refusal_note(question)}", "", "", "", "", "", ""))
    return lines


def _refusal_note(question: PlannedQuestion) -> str:
    if question.site_is_out:
        return "^ not reached" if not question.passed else f"^ left the run after {question.passed}"
    return f"^ REFUSED: {question.code}"


def _how_it_leaves(combine: str, *, masked: bool) -> str:
    if combine == "messages":
        return "sealed"
    return "own" if combine == "each" else "masked" if masked else "unmasked"


def _format_shape(value: Any) -> str:
    import numpy as np

    from fedclust.core.ring import Exact

    if value is None:
        return "-"
    if isinstance(value, (Exact, np.ndarray, np.generic)):
        return " x ".join(map(str, value.shape)) or "1"
    return "1" if isinstance(value, (int, float)) else f"{len(value)}"


def _format_numbers(found: SitePlan, *, known: bool) -> str:
    """Show the numbers that would leave, or the examples that stand in for them."""
    lines = [
        line
        for question in found.questions
        if question.release is not None and question.is_known == known
        for line in _number_lines(question)
    ]
    if not lines:
        return ""
    head = (
        "EXACTLY THESE NUMBERS WOULD LEAVE, because the questions do not depend on other sites. Masked numbers are "
        "visible only as part of a sum over sites. Under differential privacy the noise will differ."
        if known
        else "EXAMPLES, computed from this site's rows alone. The questions of a real run depend on the other sites."
    )
    return "\n".join([_fill(head), *lines])


def _number_lines(question: PlannedQuestion) -> Iterator[str]:
    if question.release is None:
        return
    for name, declared in question.release.schema().items():
        value = _format_value(question.release.field_value(name))
        yield _fill(f"{question.name}.{name} = {value}", "  ", "      ")
        yield _fill(declared.why, "      ")


def _format_value(value: Any) -> str:
    import numpy as np

    from fedclust.core.ring import Exact

    if isinstance(value, (bytes, str)):
        return f"{len(value)} bytes"
    if isinstance(value, (tuple, dict)):
        return f"{len(value)} entries"
    flat = np.ravel(value.to_floats() if isinstance(value, Exact) else np.asarray(value))
    if flat.dtype == object:
        return "nothing"
    there = np.flatnonzero(flat)
    if flat.size > 4 * MAX_SHOWN_NUMBERS and there.size <= MAX_SHOWN_NUMBERS:
        return f"{flat.size} numbers, all 0 except " + ", ".join(f"{flat[i]:.6g} at {i}" for i in there)
    shown = ", ".join(f"{number:.6g}" for number in flat[:MAX_SHOWN_NUMBERS])
    return f"{shown}, ... ({flat.size} numbers)" if flat.size > MAX_SHOWN_NUMBERS else shown


def _format_rules(found: SitePlan) -> str:
    policy = found.policy.to_dict()
    named = {
        name: value
        for name, value in policy.items()
        if name != "name" and (value is False or value not in (0, None, []))
    }
    listed = ", ".join(f"{name} = {_format_rule(value)}" for name, value in named.items())
    return _fill(f"RULES IN FORCE: {listed or 'none'}.")


def _format_rule(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else " ".join(value) if isinstance(value, list) else str(value)


def _max_bytes(found: SitePlan) -> int:
    sizes: dict[str, int] = {}
    for question in found.questions:
        sizes[question.name] = max(sizes.get(question.name, 0), question.size)
    return sum(found.max_answers[name] * size for name, size in sizes.items())


def plan_document(found: SitePlan) -> dict[str, Any]:
    """Return the plan as a JSON document for programs."""
    from fedclust.app.plan_verdict import PlanVerdict, verdict_document

    return {
        "format": "fedclust-plan",
        "version": 2,
        "study": {"name": found.study.name, "digest": found.digest},
        "site": found.party,
        "verdict": verdict_document(PlanVerdict(found)),
        "rows": found.rows,
        "columns": list(found.columns),
        "aggregation": found.study.aggregation.mode,
        "policy": {**found.policy.to_dict(), "digest": found.policy.digest},
        "allowed": found.is_allowed,
        "privacy": None
        if not found.price_rho
        else {"rho": found.price_rho, "spent": found.budget and found.budget.spent_rho},
        "most_bytes": _max_bytes(found),
        "questions": [_question_document(question) for question in found.questions],
    }


def _question_document(question: PlannedQuestion) -> dict[str, Any]:
    from fedclust.core.effects import HANDLERS

    return {
        "name": question.name,
        "times": question.times,
        "most": question.max_answers,
        "bytes": question.size,
        "known": question.is_known,
        "masked": question.is_masked,
        "passed": question.passed,
        "code": question.code,
        "fields": [
            {
                "name": name,
                "leaves": d.combine,
                "kind": d.kind,
                "why": d.why,
                "shape": _format_shape(question.release and question.release.field_value(name)),
            }
            for name, d in HANDLERS[question.name].schema.items()
        ],
    }
