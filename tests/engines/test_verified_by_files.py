"""Verified runs without a network: the outcomes travel in the message files, and each site ends with the model."""

import os

import pytest
from federation_by_files import NAMES, ByFiles, begun, in_process, outcome


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def model_at(fed, name, run):
    return (fed.folder / name / "state" / "models" / run.name / "model.json").read_bytes()


def test_each_site_ends_with_its_own_model_and_one_that_lost_its_record_gets_it_with_the_next_file(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="3", more="max_iter = 1", mode="secure", policy="standard")
    run, go_on = begun(fed)
    trips = 0

    def lose_once():
        nonlocal trips
        trips += 1
        if trips == 12:
            (record,) = (fed.folder / "south" / "state" / "transcripts").iterdir()
            record.unlink()
        return go_on()

    fed.until_done(lose_once)
    assert trips > 12
    assert outcome(run.folder) == in_process(fed)
    assert all(model_at(fed, name, run) == run.model_path.read_bytes() for name in NAMES)
