"""Every study of the golden cases, run here: a digest of each question in its order, and one of each result.

`python -m processors.transcripts FILE` (in `tests/`) writes them, so that another interpreter, BLAS or processor can be
compared with this one.
"""

import argparse
import importlib.util
import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[2]))  # papers, whose tables some cases use

import numpy as np

import fedclust as fc
from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES
from golden import cases

Transcript = dict[str, Any]


def scenarios() -> dict[str, Any]:
    """What is run, by a name: that of its case, or what it calls. Neural networks train by torch, and are left out."""
    known = {id(case.parts): name for name, case in reversed(cases.CASES.items())}
    found: dict[str, Any] = {}
    for number, (run, _, needs) in enumerate(cases.SCENARIOS):
        if all(importlib.util.find_spec(name) for name in needs):
            found[known.get(id(run)) or f"{_called(run)} ({number})"] = run
    found = {name: run for name, run in found.items() if not name.startswith("deep/fedcref") or "/private" in name}
    return found | {f"wide/{name}": partial(_fit_wide, make) for name, make in WIDE.items()}


def _fit_wide(make: Any) -> dict[str, Any]:
    """Many rows, columns and clusters: some products of BLAS and loops of NumPy depend on the processor only there."""
    rng = np.random.default_rng(28)
    groups = rng.uniform(-6, 6, (9, WIDE_COLUMNS))
    rows = groups[rng.integers(9, size=WIDE_ROWS)] + rng.random((WIDE_ROWS, WIDE_COLUMNS)) * rng.uniform(1, 3)
    fed = fc.Federation.local({f"site-{i}": rows[i::5] for i in range(5)})
    with cases.fixed_noise():
        model = make(fed)
    return {name: getattr(model, name, None) for name in ("cluster_centers_", "cluster_sizes_", "nodes_", "bic_")}


def _fit(kind: Any, *given: Any, **options: Any) -> Any:
    return lambda fed: kind(*given, **options).fit(fed)


def _choose(**options: Any) -> Any:
    return lambda fed: fc.select_k(fc.KMeans(random_state=0), fed, **options).model


WIDE_ROWS, WIDE_COLUMNS = 900, 37
PRIVATE = {"epsilon": 40.0, "bounds": (-12, 12)}
WIDE: dict[str, Any] = {
    "c-means": _fit(fc.KMeans, 11, scale="standardise"),
    "fuzzy-c-means": _fit(fc.FuzzyCMeans, 7, m=1.3, max_iter=20),
    **{f"mixture-{one}": _fit(fc.GaussianMixture, 9, family=one, max_iter=8) for one in FAMILIES},
    "choice": _choose(),
    "choice-index": _choose(criterion="index", ks=[8, 9, 10]),
    "averaged-fuzzy-c-means": _fit(fc.AveragedFuzzyCMeans, 9, max_iter=4),
    "gradient-fuzzy-c-means": _fit(fc.GradientFuzzyCMeans, 9, max_iter=4, scale="standardise"),
    "k-fed": _fit(fc.KFed, 9),
    "mufc": _fit(fc.MUFC, 9),
    "summaries": _fit(fc.SummaryClustering),
    "fcac": _fit(fc.FCAC, max_nodes=40),
    "private-c-means": _fit(fc.PrivateKMeans, 9, **PRIVATE),
    "private-fuzzy-c-means": _fit(fc.PrivateFuzzyCMeans, (2, 9), m=1.7, **PRIVATE),
}


def _called(run: Any) -> str:
    while isinstance(run, partial):
        run = run.func
    return str(run.__name__)


def transcript(run: Any) -> Transcript:
    """The questions that a scenario asks, without those that are random by nature, and what it gives."""
    first = {now: recorded for recorded, now in cases.RENAMED.items()}
    questions: list[list[str]] = []

    def keep(name: str, question: Any, release: Any, memory: Any) -> None:
        if "question" not in cases.RANDOM.get(first.get(name, name), {}):
            questions.append([name, cases.digest(question)])

    with cases.recorded_answers(keep):
        try:
            result = cases.digest(run())
        except ImportError as error:
            return {"missing": str(error)}
    return {"questions": questions, "result": result}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("file", type=Path)
    words.add_argument("--only", default="", help="scenarios whose name contains this")
    words.add_argument("--times", action="store_true")
    given = words.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    for name, run in scenarios().items():
        if given.only in name:
            begin = time.process_time()
            found[name] = transcript(run)
            if given.times:
                print(f"{time.process_time() - begin:8.2f} s  {name}", flush=True)  # noqa: T201
    given.file.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
