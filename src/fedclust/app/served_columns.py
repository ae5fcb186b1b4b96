"""The columns of a served study, which must be in its text: they cannot be looked up at remote sites."""

from __future__ import annotations

from fedclust.app.study import Study
from fedclust.core.errors import StudyError
from fedclust.questions.schema import Column, Schema, encoded_names


def site_schema(study: Study, party: str) -> Schema:
    """Return the columns that a site of a served study must have, and their types."""
    own = next((site for site in study.sites if site.name == party), None)
    if own is None:
        raise StudyError(f"the study has no site '{party}'; its sites are {', '.join(s.name for s in study.sites)}")
    if study.split == "columns":
        if own.columns is None:
            raise StudyError(
                f"[sites.{party}] must list its columns, because they cannot be looked up at a remote site"
            )
        return {name: study.schema.get(name, Column()) for name in own.columns}
    if not study.schema:
        raise StudyError("the study must list its columns, because they cannot be looked up at remote sites")
    return study.schema


def study_schema(study: Study) -> dict[str, Column]:
    """Return all columns of a served study and their types."""
    if study.split == "rows":
        return dict(site_schema(study, study.sites[0].name))
    everywhere = {name: column for site in study.sites for name, column in site_schema(study, site.name).items()}
    return dict(study.schema) if set(study.schema) == set(everywhere) else everywhere


def study_column_names(study: Study) -> tuple[str, ...]:
    return encoded_names(study_schema(study))
