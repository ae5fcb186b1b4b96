"""Sites and coordinators that stop at any step go on with the same bits; a site without its record gets it again."""

import pytest

from fedclust.core.errors import RunFailed
from verified.served_sites import NAMES, ServedSites, code_of, study_text, unpack

CLUSTER = 'method = "k-means"\nk = 3\nmax_iter = 5'
SAMPLED_KILLS = 30  # one in so many messages, in the default tests


class Killed(BaseException):
    pass


def finished_model(folder, text):
    sites = ServedSites.make(folder, text)
    run = sites.begin()
    engine = sites.engine(run)
    sites.finish(run, engine)
    return run.model_path.read_bytes(), len(engine.link.asked)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    return finished_model(tmp_path_factory.mktemp("baseline"), study_text(CLUSTER))


def test_a_site_that_restarts_at_every_step_answers_as_if_it_had_not(tmp_path, baseline):
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()

    def restart(party, data):
        if party == "south":
            sites.open("south")
        return data

    sites.finish(run, sites.engine(run, before=restart))
    assert run.model_path.read_bytes() == baseline[0]
    assert sites.model_at("south", run) == baseline[0]


def kill_at(folder, number, *, answered):
    """A coordinator that is killed at one of its messages, before or after the site has answered it, and resumed."""
    sites = ServedSites.make(folder, study_text(CLUSTER))
    run = sites.begin()
    sent = 0

    def kill(party, data):
        nonlocal sent
        sent += 1
        if sent == number:
            if answered:
                sites.sessions[party].answer_message(data)
            raise Killed
        return data

    with pytest.raises(Killed):
        sites.finish(run, sites.engine(run, before=kill))
    sites.finish(run)
    return run.model_path.read_bytes(), [sites.model_at(name, run) for name in NAMES]


@pytest.mark.parametrize("answered", [False, True])
def test_a_coordinator_that_is_killed_and_resumed_finds_the_same_model(tmp_path, baseline, answered):
    for number in range(10 + answered, baseline[1] + 1, SAMPLED_KILLS):
        assert kill_at(tmp_path / str(number), number, answered=answered) == (baseline[0], [baseline[0]] * 3)


@pytest.mark.long
@pytest.mark.parametrize("answered", [False, True])
def test_a_coordinator_can_be_killed_at_every_message(tmp_path, baseline, answered):
    for number in range(1, baseline[1] + 1):
        assert kill_at(tmp_path / str(number), number, answered=answered) == (baseline[0], [baseline[0]] * 3)


@pytest.mark.parametrize("damage", ["lost", "torn", "altered"])
def test_a_site_without_its_record_gets_all_steps_again(tmp_path, baseline, damage):
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()
    codes = []

    def spoil(party, data):
        if party == "south" and data[:1] != b"{" and unpack(data)[2].step >= 20 and not codes:
            (path,) = (sites.state("south") / "transcripts").iterdir()
            record = path.read_bytes()
            sites.open("south")
            if damage == "lost":
                path.unlink()
            else:
                path.write_bytes(record[:-5] if damage == "torn" else b"\1" + record[1:])
            sites.open("south")
            codes.append(code_of(sites.sessions[party].answer_message(data)))
        return data

    sites.finish(run, sites.engine(run, before=spoil))
    assert codes == ["outcomes-missing"]
    assert sites.model_at("south", run) == run.model_path.read_bytes() == baseline[0]


def test_a_run_whose_keys_were_made_again_goes_on_verified(tmp_path):
    """A site misses one sum, so all make fresh keys and a fresh group key."""
    sites = ServedSites.make(tmp_path, study_text(CLUSTER))
    run = sites.begin()
    missed = []

    def miss(party, data):
        if party == "west" and data[:1] != b"{" and unpack(data)[2].want == "total" and not missed:
            missed.append(party)
            return None
        return data

    engine = sites.engine(run, before=miss)
    engine.attendance.patience = 0
    sites.finish(run, engine)
    assert missed
    assert sites.model_at("west", run) == run.model_path.read_bytes()
    names = {unpack(data)[2].masks for _, data in engine.link.asked if data[:1] != b"{"}
    assert "lasting-2" in names


def test_later_rounds_continue_from_the_model_that_each_site_has(tmp_path):
    text = study_text('method = "k-means"\nk = 3\nmax_iter = 5', privacy='opening = "exact"')
    sites = ServedSites.make(tmp_path, text)
    run = sites.begin()
    sites.finish(run)
    for number in (2, 3):
        run = sites.next_round(run, f"round-{number}")
        sites.finish(run)
        assert all(sites.model_at(name, run) == run.model_path.read_bytes() for name in NAMES)


def test_a_site_without_the_earlier_model_refuses_a_later_round_until_it_has_it_again(tmp_path):
    text = study_text('method = "k-means"\nk = 3\nmax_iter = 5', privacy='opening = "exact"')
    sites = ServedSites.make(tmp_path, text)
    first = sites.begin()
    sites.finish(first)
    path = sites.state("west") / "models" / first.name / "model.json"
    path.rename(path.with_name("elsewhere"))
    later = sites.next_round(first, "round-2")
    with pytest.raises(RunFailed, match="it has no model of the round before"):
        sites.finish(later)
    path.with_name("elsewhere").rename(path)
    sites.finish(later)
    assert sites.model_at("west", later) == later.model_path.read_bytes()
