"""Whether the sites of a study can run its script themselves, and why not."""

from __future__ import annotations

from fedclust.app.study.study_parts import Study
from fedclust.core.effects import ALL_PARTIES
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import MIN_SECURE_SITES
from fedclust.models.centers_checks import SPREAD_INITS
from fedclust.models.methods import find_study_method


def reason_not_verifiable(study: Study) -> str | None:
    """Return why sites cannot run a study's script themselves, as the end of a sentence; None if they can."""
    options = study.cluster.options
    start = options.get("init")
    reasons = {
        "the rows of a column split are joined by sums of distances that no other site may see": study.split != "rows",
        "fewer than three sites could compute each other's part of a sum": len(study.sites) < MIN_SECURE_SITES,
        f"aggregation is '{study.aggregation.mode}', and only 'secure' aggregation shows the sums to the sites and "
        "nothing else": study.aggregation.mode != "secure",
        "with a quorum, nobody but the coordinator knows which sites are missing": (
            options.get("quorum", ALL_PARTIES) != ALL_PARTIES
        ),
        f"method '{study.cluster.method}' uses answers of single sites that no other site may see": (
            not find_study_method(study.cluster.method).verifiable
        ),
        f"init = '{start}' uses points of single sites that no other site may see": (
            isinstance(start, str) and start in SPREAD_INITS
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def decide_verification(study: Study, *, wanted: bool | None) -> bool:
    """Return whether the sites verify the study: if they can, unless the study says no."""
    reason = reason_not_verifiable(study)
    if wanted and reason is not None:
        raise StudyError(f"verified in [privacy] is true, but {reason}; set it to false or leave it out")
    return reason is None and wanted is not False
