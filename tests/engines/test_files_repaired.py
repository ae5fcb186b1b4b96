"""By files: a site that refused is asked again when the run is resumed, and only such a site."""

import os
from dataclasses import replace

import pytest
from federation_by_files import NAMES, ByFiles, begun, in_process, outcome, waited

from fault_rig.misdeeds import change_sum, drop_last_number, replace_by_huge, replace_by_nan
from fedclust.app.execute import resume_run
from fedclust.app.serve import open_session
from fedclust.core.envelope import Refusal, SealedAnswer
from fedclust.core.errors import QuorumLost, RunFailed
from fedclust.core.greeting import Welcome
from fedclust.engines import run_status
from fedclust.engines.files.files_link import FilesLink
from fedclust.engines.files.files_site import FileTransport
from fedclust.engines.files.message_file import Chain
from fedclust.engines.files.message_folder import MessageFolder
from fedclust.privacy import keys
from fedclust.site.server import SiteServer
from fedclust.site.session import SiteSession
from fedclust.site.site_file import read_site_file

FEW = 'max_iter = 1\ninit = "careful"'
REFUSED = "its data cannot be used"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def spoiled(fed, name="south"):
    """A site whose rows cannot be read, and what mends it."""
    path = fed.folder / name / "rows.csv"
    good = path.read_text()
    path.write_text(good + "7.0,seven\n")
    return lambda: path.write_text(good)


def away(fed, name="south"):
    """A site whose rows are not where its file says, and what mends it."""
    path = fed.folder / name / "rows.csv"
    path.rename(path.with_name("away.csv"))
    return lambda: path.with_name("away.csv").rename(path)


def too_strict(fed):
    path = fed.folder / "south" / "site.toml"
    good = path.read_text()
    path.write_text(good.replace('profile = "none"', 'profile = "none"\nmin_rows = 1000'))
    return lambda: path.write_text(good)


def other_study(fed):
    """A site that was told of another study than the coordinator's."""
    plain = fed.answer

    def answer(name):
        if name != "south":
            return plain(name)
        site, other = read_site_file(fed.folder / name / "site.toml"), fed.folder / "other.toml"
        other.write_text((fed.folder / "coordinator" / "study.toml").read_text() + "# another\n")
        with open_session(site, study=other) as door:
            return FileTransport.for_site(
                door, site, fed.folder / name / "inbox", fed.folder / name / "outbox"
            ).answer_inbox()

    fed.answer = answer
    return lambda: setattr(fed, "answer", plain)


def told_falsely(how, about):
    """A site whose answers to a question are not what it worked out."""
    plain = SiteServer.answer

    def answer(self, call):
        reply = plain(self, call)
        lies = self.party == "south" and call.handler == about and isinstance(reply, SealedAnswer)
        return how(reply) if lies else reply

    SiteServer.answer = answer
    return lambda: setattr(SiteServer, "answer", plain)


def lying(fed):
    return told_falsely(replace_by_nan, "initial_centers.seed_candidates")


def beyond_bounds(fed):
    return told_falsely(change_sum("mass", replace_by_huge), "row_split.moments")


def misshapen(fed):
    return told_falsely(change_sum("mass", drop_last_number), "row_split.moments")


def older(fed):
    """A site of another version that does not mind."""
    plain = SiteSession._answer_greeting

    def met(self, data):
        welcome = Welcome.decode(plain(self, data))
        return (replace(welcome, fedclust="0.0.1") if self.party == "south" else welcome).encode()

    SiteSession._answer_greeting = met
    return lambda: setattr(SiteSession, "_answer_greeting", plain)


def babbling(fed):
    """A site whose replies are none."""
    plain = SiteSession._answer_call_bytes
    SiteSession._answer_call_bytes = lambda self, data: b"?" if self.party == "south" else plain(self, data)
    return lambda: setattr(SiteSession, "_answer_call_bytes", plain)


@pytest.mark.parametrize(
    ("wrong", "trips", "told"),
    [
        (spoiled, 0, REFUSED),
        (spoiled, 1, REFUSED),
        (spoiled, 3, REFUSED),
        (too_strict, 0, "fewer rows than its policy"),
        (other_study, 0, "does not take part"),
        (older, 0, "install the same version"),
        (lying, 4, "is invalid"),
        (beyond_bounds, 4, "is invalid"),
        (misshapen, 4, "differs in shape or unit"),
        (babbling, 3, "no answer came"),
    ],
)
def test_a_site_that_was_mended_is_asked_anew_and_the_run_ends_in_the_same_bits(wrong, trips, told, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    run, go_on = begun(fed)
    for _ in range(trips):
        waited(go_on)
        fed.around()
    mend = wrong(fed)
    try:
        for _ in range(2):  # it refuses again, and that is said again
            with pytest.raises(RunFailed, match=rf"south.*{told}"):
                fed.until_done(go_on, most=8)
    finally:
        mend()
    assert waited(go_on).parties == ("south",)
    fed.until_done(go_on)
    assert outcome(run.folder) == in_process(fed)


def test_all_that_refuse_at_the_greeting_are_named_and_counted(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    run, go_on = begun(fed)
    waited(go_on)
    mends = [away(fed, name) for name in ("north", "west")]
    fed.around()
    with pytest.raises(
        RunFailed, match=r"'north' does not take part: its data.*; site 'west' does not take part: its data"
    ):
        go_on()
    sites = run_status.read_status(run.status_path)["sites"]
    assert {name: own["refusals"] for name, own in sites.items()} == {
        "north": {"bad-data": 1},
        "south": {},
        "west": {"bad-data": 1},
    }
    for mend in mends:
        mend()
    fed.until_done(go_on)
    assert outcome(run.folder) == in_process(fed)


@pytest.mark.parametrize("wait", [False, True])
def test_a_no_is_told_though_others_have_not_answered(wait, tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    _, go_on = begun(fed)
    waited(go_on)
    away(fed)
    fed.carry(back=False)
    fed.answer("south")
    fed.carry()
    with pytest.raises(RunFailed, match="'south' does not take part"):
        go_on(wait=wait)


def refused_and_mended(fed, go_on, trips):
    """After some trips a site's rows cannot be used, which ends the run; then they are put right."""
    for _ in range(trips):
        waited(go_on)
        fed.around()
    mend = spoiled(fed)
    with pytest.raises(QuorumLost, match=REFUSED):
        fed.until_done(go_on)
    mend()


@pytest.mark.parametrize("died", ["before the letter was written", "before it was put there"])
def test_a_coordinator_that_dies_as_it_asks_anew_asks_when_it_is_resumed(died, tmp_path, monkeypatch):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    run, go_on = begun(fed)
    refused_and_mended(fed, go_on, trips=2)
    with monkeypatch.context() as patch:
        where = (FilesLink, "_write_message") if died.endswith("written") else (MessageFolder, "write_messages")

        def die(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(*where, die)
        with pytest.raises(KeyboardInterrupt):
            go_on()
    fed.until_done(go_on)
    assert outcome(run.folder) == in_process(fed)


def test_a_sum_under_masks_goes_on_too(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW, mode="secure", policy="standard")
    run, go_on = begun(fed)
    refused_and_mended(fed, go_on, trips=5)
    fed.until_done(go_on)
    assert outcome(run.folder) == in_process(fed)


def test_a_site_that_abstains_is_asked_anew_and_abstains(tmp_path, monkeypatch):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW, mode="secure", policy="standard")
    _, go_on = begun(fed)
    for _ in range(5):
        waited(go_on)
        fed.around()

    def abstains(self, call):
        self.gate.abstain(call, "out-of-bounds")
        return Refusal(self.party, "out-of-bounds")

    with monkeypatch.context() as patch:
        patch.setattr(SiteServer, "_answer_call", abstains)
        with pytest.raises(QuorumLost, match="outside the declared bounds"):
            fed.until_done(go_on)
    assert waited(go_on).parties == NAMES
    with pytest.raises(QuorumLost, match=r"0 of 3.*outside the declared bounds"):
        fed.until_done(go_on)


def test_where_two_are_enough_nobody_waits_for_the_one_that_refused(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW + "\nquorum = 2")
    run, go_on = begun(fed)
    for _ in range(2):
        waited(go_on)
        fed.around()
    waited(go_on)
    spoiled(fed)
    fed.carry(back=False)
    fed.answer("south")
    fed.carry()
    assert waited(go_on).parties == ("north", "west")
    assert waited(go_on).parties == ("north", "west")  # its no counts however often the run is gone on with
    fed.until_done(go_on)
    assert "south" in (run.folder / "analysis.json").read_text()


@pytest.mark.engines
def test_a_blind_run_goes_on_once_the_site_is_mended(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW, mode="blind", policy="standard")
    run, _ = begun(fed)

    def go_on():
        return resume_run(run)

    for _ in range(9):
        waited(go_on)
        fed.around()
    mend = spoiled(fed)
    with pytest.raises(QuorumLost, match="south"):
        fed.until_done(go_on, most=20)
    mend()
    fed.until_done(go_on)
    assert outcome(fed.folder / NAMES[0] / "led") == in_process(fed)


def test_a_welcome_with_a_key_that_agrees_with_nothing_is_refused_by_its_name(tmp_path, monkeypatch):
    fed = ByFiles.made(tmp_path / "f", k="2", more=FEW)
    run, go_on = begun(fed)
    waited(go_on)
    with monkeypatch.context() as patch:
        plain = Chain.encode_hello
        patch.setattr(Chain, "encode_hello", lambda self, text: plain(self, text).replace(_public(self), bytes(32)))
        fed.carry(back=False)
        fed.answer("south")
    fed.carry()
    for _ in range(2):
        waiting = waited(go_on)
        assert waiting.parties == NAMES
        assert "south.message: its public key is invalid" in str(waiting)
    assert run.status_path.exists()


def _public(chain):
    return keys.public_from_private(chain.private)
