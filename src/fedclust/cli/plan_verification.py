"""What a site plan says about who checks the questions of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedclust.app.study import Study

VERIFIED_SENTENCE = (
    "This site runs the study's script itself: it answers only the question that the script asks next, over sums that "
    "the sites prove to each other. It sees these sums. One site that works with the coordinator could make false sums "
    "and so choose centres, but no other questions."
)
UNVERIFIED_SENTENCE = (
    "This site cannot check that the coordinator asks what the study's script asks, because {reason}. Its rules and "
    "the counts of an approval limit what other questions reveal."
)


def verification_sentence(study: Study) -> str:
    """Say whether the site checks the questions of a study, and what holds if it cannot."""
    from fedclust.app.study.verification import reason_not_verifiable

    if study.is_verified:
        return VERIFIED_SENTENCE
    return UNVERIFIED_SENTENCE.format(reason=reason_not_verifiable(study) or "the study sets verified to false")
