"""What a site plan says about the sums of clusters that a study opens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedclust.privacy.attacks.cell_differences import MAX_COMPARED_CELLS

if TYPE_CHECKING:
    from fedclust.app.site_plan import SitePlan

DEFAULT_FLOOR = 10  # if the study names none
EXACT_OPENING_SENTENCE = "The sum of every cluster is opened in each iteration, however few rows have changed."
WEIGHTED_OPENING_SENTENCE = "The weighted sums of every cluster are opened in each iteration."
PARTIAL_SENTENCE = (
    'Sums are not opened above a floor, because rows may have missing values (missing = "partial"): the sum of a '
    "column may then be over fewer rows than its cluster has."
)
PLAIN_SENTENCE = (
    "Aggregation is plain, so the coordinator also sees this site's own part of each sum, to which no floor applies."
)
SUMS_OF_EVERY_CLUSTER = {"row_split.moments", "rows_with_gaps.moments", "densities.moments"}


def opening_sentences(found: SitePlan) -> Iterator[str]:
    """Say which sums of groups of rows are opened, and how many rows the attacks recover from them."""
    names = {question.name for question in found.questions}
    if found.shown_rows is None and not names & SUMS_OF_EVERY_CLUSTER:
        return
    options = found.study.cluster.options
    if options.get("opening") == "floored":
        yield (
            f"The sum of a cluster is opened only if no row or at least {options.get('floor', DEFAULT_FLOOR)} rows, "
            "over all sites, distinguish it from each sum that was opened before."
        )
        if found.study.aggregation.mode == "plain":
            yield PLAIN_SENTENCE
    elif found.weighs_rows:
        yield WEIGHTED_OPENING_SENTENCE
    else:
        yield EXACT_OPENING_SENTENCE
    if found.study.missing == "partial" and found.can_open_floored:
        yield PARTIAL_SENTENCE
    if found.shown_rows is not None:
        rows = "1 row" if found.shown_rows == 1 else f"{found.shown_rows:,} rows"
        yield (
            f"In a rehearsal on this site's rows alone, the attacks in fedclust recover {rows} from everything that "
            f"the study opens. They compare two or three sums at a time, of at most {MAX_COMPARED_CELLS:,} sums. A run "
            "opens sums over all sites, so it can show other rows."
        )
    yield (
        f"A run opens at most {found.max_sums:,} sums of groups of rows, and no more rows than that, of all sites "
        "together, follow from these sums by adding and subtracting. This bound does not cover the sums of products, "
        "the scatters and the counts of a choice of K and of the description."
    )
