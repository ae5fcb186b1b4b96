"""The same studies ask the same questions, and give the same models, on an old processor."""

import pytest

from processors import settings, transcripts

pytestmark = pytest.mark.filterwarnings("ignore")  # a warning is no bit of a question


def test_an_old_processor_asks_the_same_questions_and_finds_the_same_models(tmp_path):
    there = settings.run_here(settings.OLD_PROCESSOR, tmp_path / "old.json")
    here = {name: transcripts.transcript(run) for name, run in transcripts.scenarios().items()}
    same, asked, results, runs, first = settings.differences(here, there)
    assert first == {}
    assert same == asked > 10_000
    assert results == runs == len(here) > 150


def test_a_question_that_differs_is_found():
    one = {"a": {"questions": [["ask", "1"], ["ask", "2"]], "result": "x"}, "b": {"questions": [], "result": "y"}}
    other = {"a": {"questions": [["ask", "1"], ["ask", "3"]], "result": "x"}, "b": {"questions": [], "result": "z"}}
    assert settings.differences(one, other) == (1, 2, 1, 2, {"a": "ask", "b": "the result"})
    longer = {"b": {"questions": [["ask", "1"]], "result": "y"}}
    assert settings.differences(one, longer)[-1] == {"b": "more questions"}
