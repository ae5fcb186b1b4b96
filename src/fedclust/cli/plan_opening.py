"""What a site plan says about the sums of clusters that a study opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedclust.app.site_plan import SitePlan

DEFAULT_FLOOR = 10  # if the study names none
EXACT_OPENING_SENTENCE = "The sum of every cluster is opened in each iteration, however few rows have changed."
SUMS_OF_EVERY_CLUSTER = {"row_split.moments", "rows_with_gaps.moments", "densities.moments"}


def opening_sentences(found: SitePlan) -> Iterator[str]:
    """Say which sums of clusters are opened, and how many of this site's rows they showed in the rehearsal."""
    if found.shown_rows is None:
        if any(question.name in SUMS_OF_EVERY_CLUSTER for question in found.questions):
            yield EXACT_OPENING_SENTENCE
        return
    options = found.study.cluster.options
    floor = options.get("floor", DEFAULT_FLOOR)
    rule = (
        f"The sum of a cluster is opened only if no row or at least {floor} rows, over all sites, have changed since "
        "sums that were opened before."
        if options.get("opening") == "floored"
        else EXACT_OPENING_SENTENCE
    )
    rows = "1 row" if found.shown_rows == 1 else f"{found.shown_rows:,} rows"
    yield (
        f"{rule} In the rehearsal, {rows} of this site could be computed from two or three sums. A real run opens sums "
        "over all sites, so it can show other rows."
    )
