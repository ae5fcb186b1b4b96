"""What a site plan says about who checks the questions of a study."""

from __future__ import annotations

from fedclust.app.study import Study
from fedclust.app.study.verification import reason_not_verifiable

VERIFIED_SENTENCE = (
    "This site runs the study's script itself: it answers only the question that the script asks next, over sums that "
    "the sites prove to each other. It sees these sums. One site that works with the coordinator could make false sums "
    "and so choose centres, but no other questions."
)
UNVERIFIED_SENTENCE = (
    "This site cannot check that the coordinator asks what the study's script asks, because {reason}. It refuses "
    "questions that differ from the study in a number of clusters, a unit, a scale or a price, but the coordinator can "
    "choose centres of its own."
)


def verification_sentence(study: Study) -> str:
    """Say whether the site checks the questions of a study, and what holds if it cannot."""
    if study.is_verified:
        return VERIFIED_SENTENCE
    return UNVERIFIED_SENTENCE.format(reason=reason_not_verifiable(study) or "the study sets verified to false")
