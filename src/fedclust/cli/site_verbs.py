"""`fedclust site VERB`: what a site does on its own machine, with rows that stay there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.cli import site_answer, site_plan_verb, site_serve, site_utility
from fedclust.cli.export_verb import unused_name
from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import DataError, StudyError

if TYPE_CHECKING:
    from fedclust.models.assignment import CentersModel

OWN_SITE_NAME = "here"  # stands for the site in errors, which then name the data file instead


def add_site_verbs(verbs: Any) -> None:
    site = verbs.add_parser(
        "site", help="commands for a site: assign, plan, key, utility, serve, answer", description=__doc__
    )
    acts = site.add_subparsers(title="verbs", metavar="VERB", required=True)
    assign = acts.add_parser("assign", help="label rows with a model", description=act_assign.__doc__)
    assign.add_argument("model", type=Path, metavar="MODEL", help="a model.json")
    assign.add_argument("--data", type=Path, required=True, metavar="FILE", help="rows, .csv or .parquet")
    assign.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write, .csv or .parquet")
    assign.add_argument("--id", metavar="COL", help="a column of row ids to copy to the output (default: row numbers)")
    assign.set_defaults(act=act_assign)
    site_plan_verb.add_plan_verb(acts)
    site_utility.add_utility_verb(acts)
    site_serve.add_serve_verb(acts)
    site_answer.add_answer_verb(acts)


def act_assign(chosen: argparse.Namespace) -> int:
    """Write the cluster of each row, and its memberships if the model is fuzzy. Nothing leaves this machine."""
    from fedclust import load
    from fedclust.app.output_files import TableFile
    from fedclust.federation.federation import MAX_MAGNITUDE
    from fedclust.models.assignment import model_with_centers
    from fedclust.models.input_checks import check_magnitudes
    from fedclust.site.sources import open_source, survey

    if chosen.out.exists() and chosen.data.exists() and chosen.out.samefile(chosen.data):
        raise StudyError("--out is the data file itself; write the labels to another file")
    table = TableFile(chosen.out)
    model = model_with_centers(load(chosen.model), "'fedclust site assign'")
    try:
        source = open_source(
            chosen.data, columns=tuple(model.schema), id=chosen.id, site=OWN_SITE_NAME, schema=model.schema
        )
        found = survey(source, model.missing)  # bad rows are found before anything is written
        if (found.largest > MAX_MAGNITUDE).any():
            check_magnitudes(source.columns, source.blocks())
        with table:
            for part in _label_blocks(model, source, chosen.id):
                table.write(part)
    except DataError as error:
        raise DataError(_adapt_advice(str(error), chosen.data.name)) from None
    out = f"; {found.left_out:,} of them have label -1 because too many values are missing" if found.left_out else ""
    print(f"Wrote the labels of {count_noun(found.rows + found.left_out, 'row')} to {chosen.out}{out}")
    return 0


def _adapt_advice(text: str, file: str) -> str:
    """Rewrite an error about rows so that it names the file, with advice that fits a model instead of a study."""
    what, _, advice = (
        text.replace(f" of site '{OWN_SITE_NAME}'", f" of {file}")
        .replace(f"site '{OWN_SITE_NAME}'", file)
        .rpartition("; ")
    )
    if "leave the column out" in advice:
        advice = "fill them in, or remove those rows"
    elif "leave it out of `columns`" in advice:
        advice = "the model was fitted to numbers, so use numbers there"
    elif "leave the site out" in advice:
        advice = "add rows"
    elif "names in `columns`" in advice:
        advice = "use a table with the model's columns, under the same names"
    return f"{what}; {advice}" if what else advice


def _label_blocks(model: CentersModel, source: Any, id: str | None) -> Iterator[dict[str, Any]]:  # noqa: A002
    """Label rows block by block: the row, its cluster, and its membership in each cluster."""
    import numpy as np

    names, at = source.ids(), 0
    for block in source.blocks():
        end = at + block.shape[1]
        which = {"row": np.arange(at, end)} if names is None else {str(id): names[at:end]}
        labels = {unused_name("cluster", [str(id)]): model.labels_of_block(block)}
        degrees = model.memberships_of_block(block)
        yield (
            which
            | labels
            | {f"membership_{i}": np.ascontiguousarray(u) for i, u in enumerate([] if degrees is None else degrees)}
        )
        at = end
