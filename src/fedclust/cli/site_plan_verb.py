"""`fedclust site plan` and `fedclust site key`: show what a study would send from this site, and sign an approval."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.cli.plan_opening import opening_sentences
from fedclust.core.errors import StudyError
from fedclust.core.wording import count_noun

if TYPE_CHECKING:
    from fedclust.app.site_plan import PlannedQuestion, SitePlan
    from fedclust.site.site_file import SiteFile

MAX_SHOWN_NUMBERS = 6  # numbers of an answer that are printed
DEFAULT_DELTA = 1e-6  # if the study names none
APPROVAL_DAYS = 90  # how long an approval lasts by default


def add_plan_verb(acts: Any) -> None:
    plan = acts.add_parser("plan", help="see what a study would send from this site", description=act_plan.__doc__)
    plan.add_argument("study", type=Path, metavar="STUDY", help="a study.toml")
    plan.add_argument(
        "--data", type=Path, metavar="FILE", help="this site's data file (default: the source named in the --site file)"
    )
    plan.add_argument("--site", type=Path, metavar="FILE", help="this site's site.toml")
    plan.add_argument(
        "--name",
        metavar="SITE",
        help="this site's name in the study (default: the name in the --site file, else the study's first site)",
    )
    plan.add_argument("--policy", metavar="NAME", help="the policy to assume without --site (default: standard)")
    plan.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    plan.add_argument("--approve", type=Path, metavar="FILE", help="write a signed approval of this plan; needs --site")
    plan.add_argument(
        "--key", type=Path, metavar="FILE", help="the data steward's private key, which signs the approval"
    )
    plan.add_argument(
        "--expires", metavar="DATE", help=f"the approval's last day (default: {APPROVAL_DAYS} days from today)"
    )
    plan.set_defaults(act=act_plan)
    key = acts.add_parser("key", help="make a signing key", description=act_key.__doc__)
    key.add_argument(
        "out", type=Path, metavar="FILE", help="the file for the private key; the public key goes to FILE.pub"
    )
    key.set_defaults(act=act_key)


def act_key(chosen: argparse.Namespace) -> int:
    """Make a signing key for a data steward or for a site. Keep the private key secret, and share the public key."""
    from fedclust.site.site_file import make_key

    print(f"private: {chosen.out} (keep it secret)\npublic:  {make_key(chosen.out)} (share it)")
    return 0


def act_plan(chosen: argparse.Namespace) -> int:
    """Show every message that a study would send from this site, and which of them its rules refuse. Nothing is sent.

    The exit code is 0 if the site would answer everything, and 3 if not.
    """
    from fedclust.app.run_folder import study_origin
    from fedclust.app.site_plan import make_plan
    from fedclust.app.study import read_study
    from fedclust.site.policy import find_policy
    from fedclust.site.site_file import read_site_file

    if chosen.site and chosen.policy:
        raise StudyError(
            "--site and --policy both set the rules; leave --policy out, because the site's own file decides"
        )
    if chosen.approve and not (chosen.site and chosen.key):
        raise StudyError(
            "--approve needs --site FILE (this site's own file) and --key FILE (the private key that signs the "
            "approval)"
        )
    site = read_site_file(chosen.site) if chosen.site else None
    study = read_study(chosen.study, folder=study_origin(chosen.study), served=True)
    policy = site.policy if site else find_policy(chosen.policy or "standard")
    source = chosen.data or (site.rehearsal_source if site else None)
    if source is None:
        raise StudyError(
            "this site's rows are missing; give a data file with --data, or this site's site.toml with --site"
        )
    name = chosen.name or (site.name if site else study.sites[0].name)
    found = make_plan(study, name, source, policy, site.state if site else None)
    print(json.dumps(plan_document(found)) if chosen.json else format_plan(found))
    if chosen.approve and site:
        _write_approval(found, site, chosen)
    return 3 if found.refused_questions or not found.is_affordable else 0


def _write_approval(found: SitePlan, site: SiteFile, chosen: argparse.Namespace) -> None:
    from fedclust import __version__
    from fedclust.core.atomic_files import write_file
    from fedclust.site.approval import ApprovalTerms, roster_digest, sign_terms
    from fedclust.site.site_file import read_private_key

    if found.refused_questions:
        raise StudyError("this site's own rules refuse part of the study, so there is nothing to approve")
    if not found.is_affordable:
        raise StudyError("this site's privacy budget is too small for the study, so there is nothing to approve")
    try:
        last = (
            date.fromisoformat(chosen.expires)
            if chosen.expires
            else datetime.now(UTC).date() + timedelta(APPROVAL_DAYS)
        )
    except ValueError:
        raise StudyError(f"--expires is '{chosen.expires}'; give a date such as 2030-12-31") from None
    terms = ApprovalTerms(
        found.study.name,
        site.name,
        found.digest,
        found.policy.digest,
        roster_digest(site.roster),
        __version__,
        last.isoformat(),
        found.max_answers,
        found.study.aggregation.mode,
        site.noise.digest if site.noise else "",
    )
    write_file(chosen.approve, sign_terms(terms, read_private_key(chosen.key)), one_writer=False)
    if not chosen.json:
        print(
            f"\nApproved until {last}: {chosen.approve}. Any change to the study, policy, roster or version of "
            "fedclust invalidates it."
        )


def format_plan(found: SitePlan) -> str:
    """Format the plan for a data steward: a summary, then every question and field, the numbers, the rules."""
    parts = [
        _format_summary(found),
        _format_questions(found),
        _format_numbers(found, known=True),
        _format_numbers(found, known=False),
        _format_rules(found),
    ]
    return "\n\n".join(part for part in parts if part)


def _format_summary(found: SitePlan) -> str:
    mode = found.study.aggregation.mode
    messages, size = sum(found.max_answers.values()), _max_bytes(found)
    who = {
        "plain": "The coordinator sees each answer of this site.",
        "secure": "The coordinator sees only sums over all sites, and this site's answers marked 'own answer'.",
        "blind": "The coordinator sees only the lengths and times of messages. The leading site sees sums over all "
        "sites, and this "
        "site's answers marked 'own answer'.",
    }[mode]
    head = (
        f'Study "{found.study.name}" at site "{found.party}": {found.rows:,} rows, {len(found.columns)} columns, '
        f'{len(found.study.sites)} sites, policy "{found.policy.name}", aggregation {mode}.'
    )
    if not found.is_affordable:
        verdict = "REFUSED by this site's privacy budget, which is too small for the study."
    elif not found.refused_questions:
        kinds = len({question.name for question in found.questions})
        verdict = (
            f"ALLOWED by this site's rules: {kinds} kinds of question. In a run this site sends at most "
            f"{count_noun(messages, 'answer')} "
            f"with {count_noun(size, 'byte')}, not counting the exchange of keys."
        )
    else:
        first = found.refused_questions[0]
        verdict = (
            f"REFUSED by this site's rules at message {first.message_number:,} of the run, {_refusal_reason(first)}."
        )
    return "\n".join(
        textwrap.fill(text, 110)
        for text in (head, verdict, who, *opening_sentences(found), *_spending_sentences(found))
    )


def _spending_sentences(found: SitePlan) -> Iterator[str]:
    """Say what the study reveals about each row under differential privacy, and what is left of the site's budget."""
    from fedclust.privacy.accountant import epsilon_from_rho, meaning

    if not found.price_rho:
        return
    delta = float(found.study.noise.get("delta", DEFAULT_DELTA))
    epsilon = epsilon_from_rho(found.price_rho, delta)
    yield f"Differential privacy: epsilon {epsilon:.3g} at delta {delta:g} for each row. {meaning(epsilon, delta)}"
    budget = found.budget
    if budget is not None and budget.rho_limit is not None:
        spent, after = (
            epsilon_from_rho(rho, budget.delta) for rho in (budget.spent_rho, budget.spent_rho + found.price_rho)
        )
        yield (
            f"This site's budget for all studies is epsilon {budget.epsilon:g} at delta {budget.delta:g}. {spent:.3g} "
            f"has been spent already; after this study the total would be {after:.3g}"
            + ("." if found.is_affordable else ". Ask the study's author for a smaller epsilon.")
        )


def _format_questions(found: SitePlan) -> str:
    head = ["question", "times", "at most", "field", "leaves as", "shape", "bytes", "known", "rule"]
    lines = [head, *(line for question in found.questions for line in _question_lines(question))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    rows = ["  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1]]) for line in lines]
    foot = (
        "times: how often the question was asked in a rehearsal of all rounds, on this site's rows alone. at most: how "
        "often an approval would allow it. bytes: the size of one answer. known: yes if the question does not depend "
        "on the sites' answers."
    )
    return "\n".join(["What would leave this site:", *(row.rstrip() for row in rows), textwrap.fill(foot, 110)])


def _question_lines(question: PlannedQuestion) -> list[list[str]]:
    from fedclust.core.effects import HANDLERS

    schema = HANDLERS[question.name].schema
    rule = (
        "passes" if question.code is None else f"REFUSED after {count_noun(question.passed, 'answer')}: {question.code}"
    )
    if question.site_is_out:
        rule = (
            f"the site left the run after {count_noun(question.passed, 'answer')}"
            if question.passed
            else "not reached: the site had left the run"
        )
    first = [question.name, f"{question.times:,}", f"{question.max_answers:,}"]
    last = [f"{question.size:,}" if question.size else "", "yes" if question.is_known else "no", rule]
    fields = [
        [
            name,
            _how_it_leaves(d.combine, masked=question.is_masked),
            _format_shape(question.release and question.release.field_value(name)),
        ]
        for name, d in schema.items()
    ] or [["(nothing)", "", ""]]
    return [
        [*(first if i == 0 else ["", "", ""]), *own, *(last if i == 0 else ["", "", ""])]
        for i, own in enumerate(fields)
    ]


def _how_it_leaves(combine: str, *, masked: bool) -> str:
    if combine == "messages":
        return "sealed message"
    return "own answer" if combine == "each" else "masked sum" if masked else "unmasked sum"


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
    lines = []
    for question in found.questions:
        if question.release is not None and question.is_known == known:
            lines += [
                (f"  {question.name}.{name}", f"{_format_value(question.release.field_value(name))}  [{d.why}]")
                for name, d in question.release.schema().items()
            ]
    if not lines:
        return ""
    width = max(len(name) for name, _ in lines)
    head = (
        "Exactly these numbers would leave, because the questions do not depend on other sites. Numbers marked 'masked "
        "sum' are visible only as part of a sum over sites. Under differential privacy the noise will differ:"
        if known
        else "Examples, computed from this site's rows alone (the questions of a real run depend on the other sites):"
    )
    return "\n".join([head, *(f"{name.ljust(width)}  {text}" for name, text in lines)])


def _format_value(value: Any) -> str:
    import numpy as np

    from fedclust.core.ring import Exact

    if isinstance(value, (bytes, str)):
        return count_noun(len(value), "byte")
    if isinstance(value, (tuple, dict)):
        return count_noun(len(value), "entry", "entries")
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
    text = [f"Rules in force: {listed or 'none'}."]
    text += [
        f"Refused: {_refusal_reason(question)}." for question in found.refused_questions if not question.site_is_out
    ]
    bound = (
        "An approval is valid until its last day. It covers only this study text, these rules, this noise on rows, "
        "these site keys, this version of fedclust, and at most the numbers of answers listed above."
    )
    return "\n".join(textwrap.fill(line, 110) for line in [*text, bound])


def _format_rule(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else " ".join(value) if isinstance(value, list) else str(value)


def _refusal_reason(question: PlannedQuestion) -> str:
    from fedclust.core.envelope import REMEDIES

    return f"{question.name} ({question.code}): {REMEDIES[str(question.code)]}"


def _max_bytes(found: SitePlan) -> int:
    sizes: dict[str, int] = {}
    for question in found.questions:
        sizes[question.name] = max(sizes.get(question.name, 0), question.size)
    return sum(found.max_answers[name] * size for name, size in sizes.items())


def plan_document(found: SitePlan) -> dict[str, Any]:
    """Return the plan as a JSON document for programs."""
    from fedclust.core.effects import HANDLERS

    return {
        "format": "fedclust-plan",
        "version": 1,
        "study": {"name": found.study.name, "digest": found.digest},
        "site": found.party,
        "rows": found.rows,
        "columns": list(found.columns),
        "aggregation": found.study.aggregation.mode,
        "policy": {**found.policy.to_dict(), "digest": found.policy.digest},
        "allowed": not found.refused_questions and found.is_affordable,
        "privacy": None
        if not found.price_rho
        else {"rho": found.price_rho, "spent": found.budget and found.budget.spent_rho},
        "shown_rows": found.shown_rows,
        "max_sums": found.max_sums,
        "most_bytes": _max_bytes(found),
        "questions": [
            {
                "name": q.name,
                "times": q.times,
                "most": q.max_answers,
                "bytes": q.size,
                "known": q.is_known,
                "masked": q.is_masked,
                "passed": q.passed,
                "code": q.code,
                "fields": [
                    {
                        "name": name,
                        "leaves": d.combine,
                        "kind": d.kind,
                        "why": d.why,
                        "shape": _format_shape(q.release and q.release.field_value(name)),
                    }
                    for name, d in HANDLERS[q.name].schema.items()
                ],
            }
            for q in found.questions
        ],
    }
