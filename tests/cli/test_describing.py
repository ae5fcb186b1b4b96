"""Describing a model never ends a run that is finished: a part that fails is absent, and a note says so."""

import json
from pathlib import Path

import pytest

import fedclust as fc
from fedclust.app.analysis import describe_model, epsilon_curve
from fedclust.questions import cluster_indices, composition, pca

CHOOSING = ("k = 3", 'k = "2..4"\ncriterion = "index"\nrestarts = 1')
PRIVATE = ("[sites.cleveland]", "[privacy]\nepsilon = 2.0\n\n[sites.cleveland]")
BOUNDS = ('columns = ["age", "bp"]', 'columns = ["age", "bp"]\nbounds = [-5.0, 18.0]')
PARTS = {  # the part that is absent, what raises, and what to change in the study
    "profiles": ("profiles", (describe_model._RowSplitDescriber, "profiles"), ()),
    "map": ("map", (describe_model._RowSplitDescriber, "map"), ()),
    "plane": ("map", (pca, "plane"), ()),
    "sizes": ("sizes", (describe_model._RowSplitDescriber, "sizes"), ()),
    "indices": ("indices", (cluster_indices, "compute_indices"), ()),
    "composition": ("composition", (composition, "compositions"), ()),
    "view": ("map", (describe_model.indices, "model_view"), ()),
    "fuzziness": ("fuzziness", (describe_model, "_describe_fuzziness"), ()),
    "selection": ("selection", (describe_model, "describe_choice"), (CHOOSING,)),
    "convergence": ("convergence", (describe_model, "_describe_convergence"), ()),
    "privacy": ("privacy", (epsilon_curve, "describe_privacy"), (PRIVATE, BOUNDS)),
    "left": ("left", (describe_model, "list_what_left"), ()),
}


@pytest.mark.parametrize("case", PARTS)
def test_a_part_that_fails_leaves_a_finished_run_with_its_model_and_a_note(case, user, monkeypatch):
    part, (where, name), changes = PARTS[case]
    user.study(*changes)

    def fail(*_, **__):
        raise ZeroDivisionError("37.5 is a value of a row")

    monkeypatch.setattr(where, name, fail)
    code, out, err = user("run", "study.toml")
    assert (code, "Traceback" in err) == (0, False), err
    assert fc.load(Path("runs/heart/model.json")).cluster_count == 3 or changes
    found = json.loads(Path("runs/heart/analysis.json").read_text())
    assert found[part]["absent"].startswith("Describing this failed: ZeroDivisionError at test_describing.py:")
    notes = [note for note in found["notes"] if note.startswith("The description lacks its")]
    assert notes
    assert set(notes) <= set(json.loads(Path("runs/heart/metrics.json").read_text())["notes"])
    assert notes[0] in out
    assert "37.5" not in json.dumps(found)
    others = {"profiles", "map", "sizes", "indices", "composition", "convergence", "left"} - {part}
    if case not in ("view", "plane", "privacy"):  # these several parts rest on
        assert [other for other in others if "failed" in found[other].get("absent", "")] == []
    assert user("report", "runs/heart", "--out", "page.html")[0] == 0
    assert "The description lacks its" in Path("page.html").read_text(encoding="utf-8")
    assert user("export", "runs/heart", "--to", "json")[0] == 0
