"""The one way into a site's rows: arrays, frames, files and queries all become passes over blocks of columns."""

from fedclust.site.sources.base import Block, Derived, Packed, Source
from fedclust.site.sources.row_survey import Survey, in_order, sorted_by_id, survey, taking_part
from fedclust.site.sources.source_kinds import open_source

__all__ = [
    "Block",
    "Derived",
    "Packed",
    "Source",
    "Survey",
    "in_order",
    "open_source",
    "sorted_by_id",
    "survey",
    "taking_part",
]
