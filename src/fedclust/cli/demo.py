"""`fedclust demo`: three companies find five groups of customers, one of which no company can find alone.

The example comes from paper 2 (section 3.2.1). Each company has two of four large groups, and 40 customers of a fifth,
small group.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.core.counted_nouns import count_noun

if TYPE_CHECKING:
    from fedclust import FuzzyCMeans

COMPANIES = ("north", "central", "south")
DEMO_COLUMNS = ("spend", "visits")
DEMO_DRAW = 4  # each of the draws 0 to 5 gives five clusters
CENTER_TOLERANCE = 0.15  # the large groups' standard deviation is 0.2
DEMO_STUDY = """\
# The motivational example of paper 2. Edit this file and run it again:
#   fedclust run {folder}/study.toml --out runs/mine
name = "demo"
columns = ["spend", "visits"]

[cluster]
method = "fuzzy-c-means"
k = "auto"                       # or a range such as "2..8", or a number
seed = 0

[sites.north]
source = "data/north.csv"

[sites.central]
source = "data/central.csv"

[sites.south]
source = "data/south.csv"
"""


def add_demo_verb(verbs: Any) -> None:
    demo = verbs.add_parser("demo", help="see an example: three companies, five hidden clusters", description=__doc__)
    demo.add_argument(
        "--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="the run folder (default: runs/demo)"
    )
    demo.set_defaults(act=act_demo, json=False, quiet=False)


def act_demo(chosen: argparse.Namespace) -> int:
    """Cluster three companies' customers without pooling them, and check the result against the pooled rows."""
    from fedclust import datasets, load
    from fedclust.app.coordinate import RunOptions
    from fedclust.cli import coordinate_verbs, report_verb

    drawn, truth = datasets.motivational(DEMO_DRAW)
    rows = dict(zip(COMPANIES, drawn.values(), strict=True))
    small = dict(zip(COMPANIES, (own == len(truth.centers) - 1 for own in truth.labels.values()), strict=True))
    run = _make_run_folder(chosen.out, rows)
    coordinate_verbs.finish_run(run, RunOptions(), chosen)
    model = load(run.model_path)
    print()
    print(_describe_together(model, rows, small, truth.centers))
    print(_describe_alone(rows, truth.centers))
    print(_compare_with_pooled(model, rows))
    print(f"\nThe report: {report_verb.write_report(run.folder)}")
    print(f"The study and its rows are in {run.folder}. Edit {run.folder / 'study.toml'} and run it again.")
    return 0


def _make_run_folder(folder: Path, rows: Mapping[str, Any]) -> Any:
    """Create a run folder with the study and the companies' rows; it replaces an earlier demo that nobody edited."""
    from fedclust.app.run_folder import Run

    files = {f"data/{company}.csv": _csv_text(own) for company, own in rows.items()}
    Run.remove_unedited(folder)
    return Run.create(folder, DEMO_STUDY.format(folder=folder), origin=Path(), files=files)


def _csv_text(rows: Any) -> str:
    """Format rows as CSV, with the fewest digits that keep every bit."""
    return "\n".join([",".join(DEMO_COLUMNS), *(",".join(map(repr, row)) for row in rows.tolist()), ""])


def _describe_together(model: FuzzyCMeans, rows: Mapping[str, Any], small: Mapping[str, Any], centers: Any) -> str:
    import numpy as np

    labels = np.concatenate([model.predict(own)[small[company]] for company, own in rows.items()])
    together = int(np.bincount(labels).max())
    return (
        f"Together: {_count_found_groups(model, centers)} of the {len(centers)} groups have a centre "
        f"within {CENTER_TOLERANCE} of their true centre; {together} of the {len(labels)} customers in the small "
        "group share a cluster."
    )


def _describe_alone(rows: Mapping[str, Any], centers: Any) -> str:
    """Say what each company finds alone with two clusters, the number its own rows suggest (paper 2, Table 1)."""
    from fedclust import FuzzyCMeans

    models = {company: FuzzyCMeans(2, random_state=0).fit(own) for company, own in rows.items()}
    lines = ", ".join(f"{company} {_count_found_groups(model, centers)}" for company, model in models.items())
    small = sum(_count_found_groups(model, centers[-1:]) for model in models.values())
    return (
        "Alone, each company uses two clusters, as its own rows suggest (paper 2, Table 1). The companies find these "
        f"numbers of the {len(centers)} groups: {lines}. {small} of {len(models)} companies find the small group."
    )


def _count_found_groups(model: FuzzyCMeans, centers: Any) -> int:
    """Count the groups that have one of the model's centres near their true centre."""
    import numpy as np

    apart = np.linalg.norm(model.cluster_centers_[:, None] - centers[None], axis=2)
    return int((apart.min(axis=0) <= CENTER_TOLERANCE).sum())


def _compare_with_pooled(model: FuzzyCMeans, rows: Mapping[str, Any]) -> str:
    """Compare the model, byte by byte, with the same run on the pooled rows from the same start."""
    import numpy as np
    from sklearn.base import clone

    pooled = clone(model).set_params(init=model.initial_centers_).fit(np.concatenate(list(rows.values())))
    same = (
        pooled.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
        and pooled.final_objective == model.final_objective
        and pooled.n_iter_ == model.n_iter_
    )
    rounds = (
        "Pooled: a run on all rows in one place, from the same initial centres, took "
        f"{count_noun(pooled.n_iter_, 'round')}"
    )
    return f"{rounds}. Its result has the same bits: {'yes' if same else 'NO'}"
