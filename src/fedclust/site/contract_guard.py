"""The rule of the gate that holds every question of fedclust to the study that the site serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedclust.core import wire
from fedclust.core.effects import Handler, SealedMessages
from fedclust.core.study_terms import StudyTerms
from fedclust.site.run_agreements import RunAgreements

if TYPE_CHECKING:
    from fedclust.site.guards import QuestionContext


def question_of_call(handler: Handler[Any, Any], message: Any) -> Any:
    """Return what a contract judges: the note of sealed messages if they have one, otherwise the message."""
    if handler.note is not None and isinstance(message, SealedMessages):
        return wire.decode(handler.note, message.note)
    return message


def check_contract(q: QuestionContext) -> str | None:
    """Refuse what the study does not ask: other sizes, powers, units, views or prices than its text and run give.

    A question of fedclust without a contract is refused, and so is one that its contract cannot read. Other packages
    keep the rules for their own questions.
    """
    if q.terms is None or q.agreements is None or q.handler.is_foreign:
        return None
    return None if is_in_study(q.terms, q.agreements, q.handler, q.call.run, q.call.message) else "not-in-study"


def is_in_study(
    terms: StudyTerms, agreements: RunAgreements, handler: Handler[Any, Any], run: str, message: Any
) -> bool:
    """Return whether the study asks this question in this run."""
    if handler.contract is None:
        return False
    try:
        with np.errstate(all="ignore"):
            asked = question_of_call(handler, message)
            return bool(handler.contract(terms, asked)) and agreements.allows(terms, run, asked)
    except Exception:  # noqa: BLE001 a question that cannot be judged is not one that the study asks
        return False
