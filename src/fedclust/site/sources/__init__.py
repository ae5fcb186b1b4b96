"""Reads a site's rows: arrays, frames, files and queries all become passes over blocks of columns."""

from fedclust.site.sources.row_survey import Survey, select_rows, sort_by_id, survey, take_rows
from fedclust.site.sources.source_interface import Block, DerivedSource, PackedRows, Source
from fedclust.site.sources.source_kinds import open_source

__all__ = [
    "Block",
    "DerivedSource",
    "PackedRows",
    "Source",
    "Survey",
    "open_source",
    "select_rows",
    "sort_by_id",
    "survey",
    "take_rows",
]
