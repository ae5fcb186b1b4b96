"""A rehearsal says of a served run what then happens in it, message by message, and changes nothing at a site."""

import json

import pytest
from federation_by_files import NAMES, ByFiles, begun

from fedclust.app.rehearsal_sites import read_site_files
from fedclust.app.rehearse import rehearse
from fedclust.app.study import read_study
from fedclust.core.errors import QuorumLost
from fedclust.privacy.verified.transcript import VERIFICATION_QUESTIONS


def rehearsed(fed):
    """The rehearsal of the study with the sites' own files, and their state before it, compared with that after."""
    study = read_study(fed.folder / "coordinator" / "study.toml", served=True)
    before = states(fed)
    found = rehearse(study, read_site_files([str(fed.folder)], study))
    assert states(fed) == before
    return found


def states(fed):
    paths = [path for name in NAMES for path in (fed.folder / name).rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def answered(fed, name):
    """The questions that a site answered in a served run, from its ledger; in one process nothing is verified."""
    lines = (fed.folder / name / "state" / "ledger.jsonl").read_text().splitlines()
    entries = [entry for entry in map(json.loads, lines) if not entry["abstained"]]
    return [entry for entry in entries if entry["handler"] not in VERIFICATION_QUESTIONS]


@pytest.mark.parametrize("mode", ["plain", "secure", pytest.param("blind", marks=pytest.mark.slow)])
def test_sites_answer_as_many_messages_as_in_the_rehearsal(tmp_path, mode):
    fed = ByFiles.made(tmp_path, k=2, more='max_iter = 2\ninit = "box"', mode=mode)
    found = rehearsed(fed)
    assert (found.all_answer, found.would_succeed) == (True, True)
    fed.until_done(begun(fed)[1])
    for site in found.sites:
        assert (len(answered(fed, site.party)), site.refused) == (site.answered, 0)
    assert rehearsed(fed).all_answer  # a second run of the same study would be answered too


def test_the_site_that_refuses_in_the_rehearsal_refuses_in_the_served_run(tmp_path):
    fed = ByFiles.made(tmp_path, k=2, more='max_iter = 2\ninit = "careful"', mode="secure", policy="standard")
    path = fed.folder / "south" / "site.toml"
    path.write_text(path.read_text().replace('"standard"', '"nhs"'))
    (outcome,) = [site for site in rehearsed(fed).sites if site.refusals]
    (refusal,) = outcome.refusals
    assert (outcome.party, refusal.code) == ("south", "points-not-allowed")
    with pytest.raises(QuorumLost, match=refusal.question) as lost:
        fed.until_done(begun(fed)[1])
    assert lost.value.missing == {"south": "points-not-allowed"}
    assert len(answered(fed, "south")) == refusal.message - 1
