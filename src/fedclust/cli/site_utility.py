"""`fedclust site utility`: shows how good clusters would be at each epsilon, before any budget is spent."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import StudyError

BAR_WIDTH = 30


def add_utility_verb(acts: Any) -> None:
    utility = acts.add_parser(
        "utility", help="see how each epsilon affects the clusters", description=act_utility.__doc__
    )
    utility.add_argument("study", type=Path, metavar="STUDY", help="a study.toml with bounds and k")
    utility.add_argument("--data", type=Path, required=True, metavar="FILE", help="this site's rows, .csv or .parquet")
    utility.add_argument("--name", metavar="SITE", help="this site's name in the study (default: the first)")
    utility.add_argument("--tries", type=int, default=3, metavar="N", help="runs at each epsilon (default: 3)")
    utility.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    utility.set_defaults(act=act_utility)


def act_utility(chosen: argparse.Namespace) -> int:
    """Cluster this site's rows with and without noise, at several epsilons, and show how well the labels agree.

    Nothing leaves this machine, and no budget is spent. A run over all sites has more rows, so it will give better
    clusters.
    """
    from dataclasses import asdict

    import numpy as np

    from fedclust.app.analysis.epsilon_curve import EPSILONS, measure_curve
    from fedclust.app.study import read_study
    from fedclust.privacy import accountant
    from fedclust.site.sources import open_source

    if chosen.tries < 1:
        raise StudyError("--tries must be at least 1")
    study = read_study(chosen.study, served=True)
    private = study.private_form()
    names = [site.name for site in study.sites]
    if chosen.name is not None and chosen.name not in names:
        raise StudyError(f"the study has no site '{chosen.name}'; choose one of {', '.join(names)} with --name")
    source = open_source(chosen.data, columns=study.columns, site=chosen.name or names[0], schema=study.schema or None)
    X = np.concatenate(list(source.blocks()), axis=1).T.astype(np.float64)
    X = np.ascontiguousarray(X[np.isfinite(X).all(axis=1)])
    estimator = private.make_estimator(source.columns)
    own = float(estimator.get_params()["epsilon"])
    points = measure_curve(estimator, X, epsilons=sorted({*EPSILONS, own}), tries=chosen.tries)
    delta = float(estimator.get_params()["delta"])
    if chosen.json:
        curve = [asdict(point) | {"meaning": accountant.meaning(point.epsilon, delta)} for point in points]
        print(json.dumps({"format": "fedclust-utility", "version": 1, "rows": len(X), "delta": delta, "curve": curve}))
        return 0
    print(
        "Agreement (adjusted Rand index) with the clusters found without noise, on "
        f"{count_noun(len(X), 'row')} of this site:\n"
    )
    for point in points:
        bar = "#" * round(max(0.0, point.mean) * BAR_WIDTH)
        mark = "  <- this study" if study.noise and point.epsilon == own else ""
        print(f"  epsilon {point.epsilon:<5g} {point.mean:6.3f}  (lowest {point.least:.3f})  {bar}{mark}")
    sentences = [f"At epsilon = {own:g}: {accountant.meaning(own, delta)}", accountant.warning(own) or ""]
    print("\n" + "\n".join(textwrap.fill(sentence, 110) for sentence in sentences if sentence))
    return 0
