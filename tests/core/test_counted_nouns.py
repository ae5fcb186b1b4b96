"""Counts agree with their nouns in what people read."""

import numpy as np

import fedclust as fc
from fedclust.questions.choice_of_k.choice_notes import drop_large_candidates


def test_one_round_and_one_row_are_singular():
    fed = fc.Federation.local({"a": np.random.default_rng(0).normal(size=(60, 2))})
    notes = fc.KMeans(3, max_iter=1).fit(fed).notes_
    assert any(note.startswith("Stopped after 1 round,") for note in notes)
    assert drop_large_candidates([1, 2], 1)[1] == ["The table has only 1 row, so K = 2 was not tried."]
