"""A site's own file, and the approval it may wait for: one letter of study or policy undoes it."""

import json
import os
import stat
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms import kfed
from fedclust.app import serve
from fedclust.core.envelope import Call, Refusal
from fedclust.core.errors import StudyError
from fedclust.core.site_interface import View
from fedclust.engines.coordinator_file import read_coordinator_file
from fedclust.privacy.keys import Identity
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.site.approval import ApprovalTerms, digest_study, read_terms, roster_digest, sign_terms
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.site_file import (
    POLICY_KEYS,
    make_key,
    policy_from_table,
    read_private_key,
    read_public_key,
    read_site_file,
)

STUDY = 'name = "heart"\n[cluster]\nmethod = "k-means"\nk = 3\n'


@pytest.fixture
def folder(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 2))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="age,bp", comments="")
    for name in ("north", "steward"):
        make_key(tmp_path / f"{name}.key")
    return tmp_path


def written(folder, text="", policy='profile = "datashield"'):
    key = read_public_key(folder / "north.key.pub").hex()
    (folder / "site.toml").write_text(
        f'name = "north"\nsource = "rows.csv"\nstate = "state"\nidentity = "north.key"\n{text}\n'
        f'[policy]\n{policy}\n[roster]\nnorth = "{key}"\n'
    )
    return read_site_file(folder / "site.toml")


WAITING = 'steward = "steward.key.pub"\napproval = "approval.json"'


def approve(folder, *, study=STUDY, signer="steward", **changed):
    site = written(folder, WAITING)
    terms = ApprovalTerms(
        "heart",
        site.name,
        digest_study(study),
        site.policy.digest,
        roster_digest(site.roster),
        fc.__version__,
        "2999-12-31",
        {"bounds.count_rows": 2},
    )
    text = sign_terms(replace(terms, **changed), read_private_key(folder / f"{signer}.key"))
    (folder / "approval.json").write_text(text)
    return site


def call(step=1, *, study=STUDY, handler="bounds.count_rows", run="1f"):
    cohort = ("north", "south", "west")
    return Call(f"{run}-{digest_study(study)}", step, handler, ColumnsQuestion(2), "total", cohort)


def code(reply):
    return reply.code if isinstance(reply, Refusal) else None


def test_a_site_file_becomes_a_desk(folder):
    site = written(folder)
    assert (site.name, site.policy, site.state) == ("north", PROFILES["datashield"], folder / "state")
    desk = site.open_server(columns=("age", "bp"))
    assert desk.answer(call()).release.rows.to_integers() == [30]
    assert desk.gate.vault_for("run").sign(b"x")
    assert (folder / "state" / "ledger.jsonl").exists()


def test_a_desk_knows_the_method_of_the_study_it_serves(folder):
    sites = "".join(f"[sites.{name}]\n" for name in ("north", "south", "west"))
    study = f'name = "s"\ncolumns = ["age", "bp"]\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}'
    desk = serve.open_study_server(written(folder), study)
    view = View(np.array([9, 9], np.int32))
    ask = Call("1f-s", 1, "kfed.device_centers", kfed.DeviceQuestion(view, 2, 5, 0), "each", ("north", "south", "west"))
    assert (desk.gate.method, code(desk.answer(ask))) == ("k-means", "handler-not-allowed")


def test_single_rules_are_put_over_a_profile(folder):
    policy = written(folder, policy='profile = "nhs"\nmin_cell = 12\nhandlers = ["bounds.count_rows"]').policy
    assert policy == replace(
        PROFILES["nhs"], name="nhs, changed", min_cell=12, handlers=frozenset({"bounds.count_rows"})
    )
    assert written(folder, policy="min_rows = 4").policy == Policy("own", min_rows=4)


def test_every_rule_is_a_key_of_the_file():
    from dataclasses import fields

    assert set(POLICY_KEYS) - {"profile"} == {f.name for f in fields(Policy)} - {"name"}


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"min_cel": 3}, "did you mean 'min_cell'"),
        ({"profile": "lax"}, "must be one of none, datashield"),
        ({"min_cell": -1}, "a whole number"),
        ({"min_cell": True}, "a whole number"),
        ({"max_share": 2}, "from 0 to 1"),
        ({"delta": 0.5}, "from 0 to 0.01"),
        ({"points": 1}, "true or false"),
        ({"handlers": ["nobody.knows"]}, "a list of questions"),
        ({"aggregation": "loud"}, "one of plain, secure, blind"),
    ],
)
def test_a_bad_rule_is_refused_in_one_sentence(table, told):
    with pytest.raises(StudyError, match=told):
        policy_from_table(table, "[policy]")


def test_a_roster_that_gives_two_sites_one_key_is_refused(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(f'[roster]\nnorth = "{"ab" * 32}"\nsouth = "{"cd" * 32}"\nwest = "{"AB" * 32}"\n')
    with pytest.raises(StudyError, match="lists the same key for 'north' and 'west'; each site needs its own"):
        read_coordinator_file(path)
    path.write_text(f'[roster]\nnorth = "{"ab" * 32}"\nsouth = "{"cd" * 32}"\n')
    assert read_coordinator_file(path).roster == {"north": b"\xab" * 32, "south": b"\xcd" * 32}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('sorce = "x"', "did you mean 'source'"),
        ('approval = "approval.json"', "needs both"),
        ("id = 3", "it must be a text"),
        ("= 3", "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(folder, text, told):
    with pytest.raises(StudyError, match=told):
        written(folder, text)


def test_a_file_that_is_not_there_or_lacks_its_rules(tmp_path):
    with pytest.raises(StudyError, match="there is no site file"):
        read_site_file(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_text('name = "north"\nsource = "x.csv"\n')
    with pytest.raises(StudyError, match="lacks policy"):
        read_site_file(tmp_path / "site.toml")


@pytest.mark.parametrize("key", ["source", "policy", "packages"])
def test_a_study_that_would_rule_a_served_site_is_refused(folder, key):
    site = written(folder)
    site.check_study(STUDY + "[sites.north]\n")
    with pytest.raises(StudyError, match=f"the study sets {key} in \\[sites.north\\]"):
        site.check_study(STUDY + f'[sites.north]\n{key} = "none"\n')


def test_keys_are_for_their_owner_and_never_overwritten(folder):
    assert stat.S_IMODE((folder / "north.key").stat().st_mode) == 0o600
    assert read_private_key(folder / "north.key").public == read_public_key(folder / "north.key.pub")
    with pytest.raises(StudyError, match="never overwritten"):
        make_key(folder / "north.key")


def test_an_identity_that_the_roster_does_not_know_is_refused(folder):
    written(folder)
    path, other = folder / "site.toml", folder / "other.key"
    make_key(other)
    path.write_text(path.read_text().replace('"north.key"', '"other.key"'))
    with pytest.raises(StudyError, match=r"identity is not the key that \[roster\] lists for north; .*other\.key\.pub"):
        read_site_file(path)
    other.unlink()  # whoever looks at a study need not have the key
    assert read_site_file(path).identity == other


def test_a_public_half_is_no_identity(folder):
    written(folder)
    path = folder / "site.toml"
    path.write_text(path.read_text().replace('"north.key"', '"north.key.pub"'))
    with pytest.raises(StudyError, match=r"north\.key\.pub is a public key, which cannot sign; use .*north\.key$"):
        read_site_file(path)
    with pytest.raises(StudyError, match="is a public key"):
        read_private_key(folder / "north.key.pub")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_private_key_that_others_can_read_is_not_used(folder, mode):
    key = folder / "north.key"
    key.chmod(mode)
    with pytest.raises(StudyError, match=r"others can read the private key at .*north\.key; .* chmod 600 "):
        read_private_key(key)
    key.chmod(0o400)
    assert read_private_key(key).public == read_public_key(folder / "north.key.pub")


def test_a_private_key_of_another_owner_may_be_a_groups_and_not_everyones(folder, monkeypatch):
    key = folder / "north.key"
    monkeypatch.setattr(os, "getuid", lambda: key.stat().st_uid + 1)
    for mode in (0o644, 0o604, 0o642, 0o601):
        key.chmod(mode)
        with pytest.raises(StudyError, match=r"others can read .*chmod 600 .*FAT has no file owners"):
            read_private_key(key)
    key.chmod(0o640)
    assert read_private_key(key).public == read_public_key(folder / "north.key.pub")


def test_an_approved_study_is_answered_as_often_as_approved(folder):
    desk = approve(folder).open_server()
    assert [code(desk.answer(call(step))) for step in (1, 2, 3)] == [None, None, "not-approved"]
    assert (
        code(approve(folder).open_server().answer(call(run="2f"))) == "not-approved"
    )  # nor in another run of the study


def test_counts_hold_after_a_restart(folder):
    replies = [code(approve(folder).open_server().answer(call(step))) for step in (1, 2, 3)]
    assert replies == [None, None, "not-approved"]


@pytest.mark.parametrize(
    "changed",
    [
        {"policy": PROFILES["none"].digest},
        {"sites": roster_digest({"north": bytes(32)})},
        {"fedclust": "0.0.9"},
        {"script": 0},
        {"expires": "2020-01-01"},
        {"most": {"bounds.magnitudes": 9}},
        {"study": digest_study(STUDY + " ")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_whatever_else_was_approved_is_not(folder, changed):
    assert code(approve(folder, **changed).open_server().answer(call())) == "not-approved"


@pytest.mark.parametrize("place", range(len(STUDY)))
def test_one_letter_of_the_study_undoes_the_approval(folder, place):
    other = STUDY[:place] + chr(ord(STUDY[place]) ^ 1) + STUDY[place + 1 :]
    assert code(approve(folder).open_server().answer(call(study=other))) == "not-approved"


def test_one_letter_of_the_policy_undoes_the_approval(folder):
    approve(folder)
    assert code(
        written(folder, WAITING, policy='profile = "datashield"\nmin_cell = 4').open_server().answer(call())
    ) == ("not-approved")


def test_the_last_day_counts(folder):
    found = approve(folder, expires="2030-06-01").load_approval()
    desk = approve(folder, expires="2030-06-01").open_server()
    for today, expected in ((date(2030, 6, 1), None), (date(2030, 6, 2), "not-approved")):
        desk.gate.approval = replace(found, today=lambda today=today: today)
        assert code(desk.answer(call(step=today.day))) == expected


def test_an_approval_by_someone_else_or_altered_is_refused(folder):
    with pytest.raises(StudyError, match="not signed by this site's steward"):
        approve(folder, signer="north").open_server()
    approve(folder)
    document = json.loads((folder / "approval.json").read_text())
    for name, value in (("most", {"bounds.count_rows": 3}), ("expires", "2999-12-30"), ("name", "hearts")):
        (folder / "approval.json").write_text(json.dumps({**document, name: value}))
        with pytest.raises(StudyError, match="was altered"):
            read_terms(folder / "approval.json", {read_public_key(folder / "steward.key.pub")})
    (folder / "approval.json").write_text("{}")
    with pytest.raises(StudyError, match="is not an approval"):
        read_terms(folder / "approval.json", {Identity.new().public})


def test_a_run_of_a_study_names_it_in_every_call(tmp_path):
    from fedclust.app.run_folder import Run

    run = Run.create(tmp_path / "run", STUDY, origin=tmp_path)
    assert (run.folder / "run").read_text().strip().partition("-")[2] == digest_study(STUDY)


TWO_STEWARDS = 'steward = ["steward.key.pub", "second.key.pub"]\napproval = "approval.json"'
TWO_SIGNATURES = 'profile = "datashield"\nsignatures = 2'


def signed_by(folder, *names, expires="2999-12-31"):
    """The site's file, and an approval with the signatures of some keys, given one after the other."""
    for name in {"second", *names}:
        if not (folder / f"{name}.key").exists():
            make_key(folder / f"{name}.key")
    site = written(folder, TWO_STEWARDS, TWO_SIGNATURES)
    facts = (site.policy.digest, roster_digest(site.roster), fc.__version__, expires)
    terms, given = ApprovalTerms("heart", site.name, digest_study(STUDY), *facts, {"bounds.count_rows": 2}), {}
    for name in names:
        text = sign_terms(terms, read_private_key(folder / f"{name}.key"), given)
        (folder / "approval.json").write_text(text)
        given = {bytes.fromhex(key): bytes.fromhex(own) for key, own in json.loads(text)["signatures"].items()}
    return site


def test_two_stewards_sign_one_file_and_the_site_answers(folder):
    assert code(signed_by(folder, "steward", "second").open_server().answer(call())) is None


@pytest.mark.parametrize("names", [("steward",), ("second",), ("steward", "steward")])
def test_one_steward_is_not_two(folder, names):
    with pytest.raises(StudyError, match="has 1 of the 2 signatures") as refused:
        signed_by(folder, *names).open_server()
    assert refused.value.code == "not-approved"


def test_a_key_written_in_another_case_does_not_count_twice(folder):
    site = signed_by(folder, "steward")
    path = folder / "approval.json"
    document = json.loads(path.read_text())
    ((key, own),) = document["signatures"].items()
    path.write_text(json.dumps({**document, "signatures": {key: own, key.upper(): own}}))
    with pytest.raises(StudyError, match="has 1 of the 2 signatures"):
        site.open_server()


def test_a_second_signature_by_a_stranger_is_refused(folder):
    with pytest.raises(StudyError, match="not signed by this site's steward"):
        signed_by(folder, "steward", "stranger").open_server()


def test_one_altered_signature_of_two_spoils_the_approval(folder):
    site = signed_by(folder, "steward", "second")
    path = folder / "approval.json"
    document = json.loads(path.read_text())
    for key, own in document["signatures"].items():
        other = f"{int(own[0], 16) ^ 1:x}{own[1:]}"
        path.write_text(json.dumps({**document, "signatures": {**document["signatures"], key: other}}))
        with pytest.raises(StudyError, match="was altered"):
            site.open_server()
    path.write_text(json.dumps({**document, "signatures": {}}))
    with pytest.raises(StudyError, match="was altered"):
        site.open_server()


def test_two_signatures_expire_like_one(folder):
    site = signed_by(folder, "steward", "second", expires="2020-01-01")
    assert code(site.open_server().answer(call())) == "not-approved"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WAITING, "requires 2 signatures but names 1 steward;"),
        ('steward = ["steward.key.pub", "steward.key.pub"]\napproval = "a.json"', "same key for two stewards"),
        ("", "requires 2 signatures but names 0 stewards"),
    ],
)
def test_a_file_whose_stewards_cannot_sign_as_required_is_refused(folder, text, told):
    with pytest.raises(StudyError, match=told):
        written(folder, text, TWO_SIGNATURES)


def test_a_column_that_the_policy_does_not_list_is_refused_before_any_question(folder):
    sites = "".join(f"[sites.{name}]\n" for name in ("north", "south", "west"))
    study = f'name = "s"\ncolumns = ["age", "bp"]\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}'
    site = written(folder, policy='profile = "datashield"\ncolumns = ["age"]')
    with pytest.raises(StudyError, match="the study uses 'bp', which `columns` in the policy of site 'north'") as no:
        serve.open_study_server(site, study)
    assert no.value.code == "column-not-allowed"
    assert not (folder / "state" / "ledger.jsonl").exists()
    allowed = written(folder, policy='profile = "datashield"\ncolumns = ["age", "bp", "id"]')
    assert serve.open_study_server(allowed, study).gate.policy.columns == {"age", "bp", "id"}


def test_the_column_of_ids_must_be_listed_too(folder):
    sites = "".join(f"[sites.{name}]\n" for name in ("north", "south", "west"))
    study = f'name = "s"\nid = "bp"\ncolumns = ["age"]\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}'
    with pytest.raises(StudyError, match="the study uses 'bp'"):
        serve.open_study_server(written(folder, policy='columns = ["age"]'), study)


def test_a_coordinator_learns_the_code_of_a_column_that_is_not_listed(folder):
    from fedclust.core.greeting import Greeting, Welcome

    sites = "".join(f"[sites.{name}]\n" for name in ("north", "south", "west"))
    study = f'name = "s"\ncolumns = ["age", "bp"]\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}'
    (folder / "study.toml").write_text(study)
    site = written(folder, policy='profile = "datashield"\ncolumns = ["age"]')
    with serve.open_session(site, study=folder / "study.toml") as session:
        greeting = Greeting.for_party("north", run=f"1f-{digest_study(study)}", study=study)
        assert Welcome.decode(session.answer_message(greeting.encode())).code == "column-not-allowed"
    assert "'bp'" in session.refusals[-1]


def test_a_policy_with_columns_holds_in_one_process_too():
    rows = np.arange(12.0).reshape(6, 2)
    with pytest.raises(StudyError, match="the study uses 'x1', which `columns` in the policy of site 'a'"):
        fc.Federation.local({"a": rows}, policy=Policy("own", columns=frozenset({"x0"})))
