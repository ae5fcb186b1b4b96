"""C-means over columns that opens labels alone: the same labels and centres, and nothing to unfold."""

import json

import numpy as np
import pytest

import fedclust as fc
from benchmarks import labels_mode as bench
from fedclust.algorithms.cmeans import column_labels, column_split
from fedclust.algorithms.cmeans.fit_result import FitNotes
from fedclust.app.audit.observer_record import record_federation
from fedclust.app.serve import open_study_server
from fedclust.cli.main import main
from fedclust.core import wire
from fedclust.core.effects import Ask, SealedMessages, collect_messages, each, forward_messages, group_by_recipient
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import QuorumLost, StudyError
from fedclust.privacy import attacks, secret_argmin
from fedclust.site.policy import PROFILES
from fedclust.site.site_file import read_site_file
from fedclust.testing.faulty_engines import Faulty


def table(rows=90, clusters=3, sites=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2 * sites)) + 2.0 * (np.arange(rows) % clusters)[:, None]
    return X, {f"s{i}": X[:, 2 * i : 2 * i + 2] for i in range(sites)}


def fitted(parts, start, opens="labels", federation=None, **options):
    fed = fc.Federation.local(parts, split="columns", **(federation or {}))
    return fc.KMeans(len(start), init=start, opens=opens, **options).fit(fed)


def same(a, b):
    assert np.array_equal(a.labels_, b.labels_)
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.array_equal(a.cluster_sizes_, b.cluster_sizes_)
    assert a.n_iter_ == b.n_iter_


@pytest.mark.parametrize(("clusters", "sites"), [(1, 3), (2, 3), (3, 3), (4, 5), (6, 4)])
def test_labels_and_centres_are_those_of_the_run_that_opens_distances(clusters, sites):
    X, parts = table(clusters=clusters, sites=sites)
    start = X[:clusters] + 0.5
    same(fitted(parts, start), fitted(parts, start, "distances"))


def test_of_equal_distances_the_first_wins():
    X = np.array([[0.0, 1.0, 0.0], [4.0, 1.0, 0.0], [2.0, 1.0, 0.0], [2.0, 1.0, 0.0]])
    parts = {name: X[:, [i]] for i, name in enumerate("abc")}
    centers = np.array([[0.0, 1.0, 0.0], [4.0, 1.0, 0.0], [4.0, 1.0, 0.0]])
    model = fc.KMeans(3, init=centers, opens="labels", max_iter=1).fit(fc.Federation.local(parts, split="columns"))
    model.cluster_centers_ = centers
    assert model.predict(fc.Federation.local(parts, split="columns")).tolist() == [0, 1, 0, 0]


def test_many_equal_distances_are_decided_alike():
    rounded, whole = table(rows=200)
    whole = {name: np.round(part) for name, part in whole.items()}
    start = np.round(rounded[:3])
    same(fitted(whole, start), fitted(whole, start, "distances"))


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ({"scale": "standardise"}, True),
        ({"scale": "standardise"}, False),
        ({"scale": "minmax", "bounds": (-9, 12)}, False),
    ],
)
def test_scales_and_drawn_starts_work_alike(options, drawn):
    X, parts = table(clusters=2)
    start = "box" if drawn else X[:2]
    made = [
        fc.KMeans(2, init=start, opens=opens, max_iter=4, tol=None, **options).fit(
            fc.Federation.local(parts, split="columns")
        )
        for opens in ("labels", "distances")
    ]
    assert not any("restarted from a new centre" in note for model in made for note in model.notes_)
    same(*made)


def test_a_cluster_without_rows_gets_half_of_the_largest():
    X, parts = table()
    start = np.vstack([X[:2], np.full((1, 6), 1e3)])
    model = fitted(parts, start)
    assert (model.cluster_sizes_ > 0).all()
    assert any("restarted from a new centre" in note for note in model.notes_)
    same(model, fitted(parts, start))
    classes = column_labels._refill_empty_clusters(
        np.array([0] * 20 + [2] * 10), 4, np.random.default_rng(0), FitNotes(), 1
    )
    assert np.bincount(classes).tolist() == [5, 10, 10, 5]


def test_there_is_no_objective_and_the_notes_say_so():
    X, parts = table()
    model = fitted(parts, X[:3])
    assert model.final_objective is None
    assert {entry["objective"] for entry in model.history_} == {None}
    assert model.history_[-1]["shift"] == 0
    assert any(note.startswith("Only labels were revealed") for note in model.notes_)
    short = fitted(parts, X[:3] * 3, max_iter=1)
    assert any("while rows still changed" in note for note in short.notes_)


def test_prediction_opens_labels_only():
    X, parts = table()
    model = fitted(parts, X[:3])
    fed = fc.Federation.local(parts, split="columns")
    recording = record_federation(fed)
    assert np.array_equal(model.predict(fed), model.labels_)
    assert not any(seen.has_fields("d2") for seen in recording.coordinator_view())


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_nothing_but_labels_is_opened(mode):
    """The coordinator gets facts before the first round, sealed letters and shares of labels, and nothing more."""
    X, parts = table()
    fed = fc.Federation.local(parts, split="columns", aggregation=mode, policy=PROFILES["standard"])
    recording = record_federation(fed)
    fc.KMeans(3, init=X[:3], opens="labels", max_iter=3).fit(fed)
    asked = {ask.handler.name for _, ask in recording.asked_questions}
    assert asked == {
        "column_split.identify_rows",
        "column_split.prepare",
        "column_split.mark_distance_bounds",
        "column_labels.take_seat",
        "column_labels.receive_seed",
        "column_labels.enter_comparison",
        "column_labels.continue_comparison",
        "column_labels.finish_comparison",
        "column_labels.move_to_label_means",
    }
    assert attacks.attack_by_unfolding(recording.coordinator_view() + recording.lead_view()) == ()


def test_attack_c_is_no_better_than_a_guess_on_what_seats_and_coordinator_saw():
    found = bench.measured(300, 4)
    assert found["missed"] == []
    assert found["right labels"] == 1
    assert found["error / guess: distances"] < 1e-9  # the same attack, where distances are opened
    assert found["error / guess: a seat, least"] > 1
    assert found["error / guess: messages"] > 1
    assert found["matrices to unfold"] == 0


def test_a_run_cut_short_at_any_message_goes_on_to_the_same_bits(tmp_path):
    X, parts = table(rows=20)
    want = fitted(parts, X[:3], max_iter=1, tol=None)
    for step in (7, 14):
        folder = tmp_path / str(step)
        fed = fc.Federation.local(parts, split="columns", run=folder)
        fed.use_engine(Faulty(fed.engine, lambda s, p, step=step: "lost" if (s, p) == (step, "s1") else None))
        model = fc.KMeans(3, init=X[:3], opens="labels", max_iter=1, tol=None)
        with fed:
            try:
                model.fit(fed)
            except QuorumLost as lost:
                assert lost.missing == {"s1": "no-answer"}  # noqa: PT017 what matters comes after
        with fc.Federation.local(parts, split="columns", run=folder) as again:
            same(fc.KMeans(3, init=X[:3], opens="labels", max_iter=1, tol=None).fit(again), want)


def test_what_cannot_be_done_is_refused_in_words():
    X, parts = table()
    for options, fed, words in (
        ({"opens": "all"}, fc.Federation.local(parts, split="columns"), "'opens' is 'all'"),
        ({"opens": "labels"}, fc.Federation.local({"a": X, "b": X}), "column splits"),
        ({"opens": "labels"}, fc.Federation.local(dict(list(parts.items())[:2]), split="columns"), "three sites"),
        ({"opens": "labels", "init": "k-means++"}, fc.Federation.local(parts, split="columns"), "use init='box'"),
    ):
        with pytest.raises(StudyError, match=words):
            fc.KMeans(3, **{"init": "box", **options}).fit(fed)
    model = fitted(parts, X[:3])
    fed = fc.Federation.local(parts, split="columns")
    with pytest.raises(StudyError, match="needs distances"):
        fc.indices.xie_beni(model, fed)
    with pytest.raises(StudyError, match="give a single K"):
        fc.select_k(fc.KMeans(init="box", opens="labels"), fed, [2, 3])


def test_a_seat_that_was_not_enrolled_is_refused():
    _, parts = table(sites=4)
    fed = fc.Federation.local(parts, split="columns")

    def ask():
        yield from column_labels.assign_seats(("s0", "s1", "s0"), 3)

    with pytest.raises(QuorumLost):
        fed.run(ask())


def begun(fed, X, clusters=3):
    """Centres in place, and seats taken."""
    how = {
        p: column_split.Preparation(centers=part)
        for p, part in column_split.slices(fed.column_places, X[:clusters]).items()
    }
    table = yield from column_split.agree_on_table(fed.column_places, how)
    return table, (yield from column_labels.assign_seats(fed.parties, clusters))


def entered(fed, table, seats):
    """All seats enter their numbers; the masks that the first one's are under."""
    ask = wire.encode(column_labels.RowComparison(seats, column_split.RowSpan(0, table.rows, table.unit)))
    yield from forward_messages(column_labels.enter_comparison, {party: {} for party in seats.parties}, ask)
    return fed.local_sites[seats.parties[0]].memory[fed.run_id]["bits.own"][0].copy()


def test_a_seat_counts_its_masks_from_the_start_once_only():
    # With a new seed from the seat after, the first seat would begin to count anew under the seed it had: the same
    # masks for other distances, whose difference is then in the open for the coordinator and that one seat.
    X, parts = table()
    fed = fc.Federation.local(parts, split="columns")

    def trick():
        made, seats = yield from begun(fed, X)
        yield from entered(fed, made, seats)
        seeds = yield from collect_messages(column_labels.take_seat, seats, among=("s1",))
        yield column_labels._ask_once(column_labels.receive_seed, {"s0": SealedMessages(seeds["s0"], b"")})

    with pytest.raises(QuorumLost) as lost:
        fed.run(trick())
    assert lost.value.missing == {"s0": "keys-refused"}


def test_seats_that_are_taken_anew_draw_other_masks():
    X, parts = table()
    fed = fc.Federation.local(parts, split="columns")

    def script():
        made, seats = yield from begun(fed, X)
        first = yield from entered(fed, made, seats)
        again = yield from column_labels.assign_seats(fed.parties, 3)
        return first, (yield from entered(fed, made, again))

    first, second = fed.run(script())[0]
    assert not (first == second).any()


@pytest.mark.parametrize("order", [("s1", "s0", "s2"), ("s0", "s1", "s3")])
def test_other_seats_than_those_that_were_taken_are_refused(order):
    X, parts = table(sites=4)
    fed = fc.Federation.local(parts, split="columns")

    def trick():
        made, _ = yield from begun(fed, X)
        yield from entered(fed, made, column_labels.Seats(order))

    with pytest.raises(QuorumLost) as lost:
        fed.run(trick())
    assert set(lost.value.missing.values()) == {"keys-refused"}


def test_a_seed_of_another_than_the_seat_after_is_refused():
    _, parts = table()
    fed = fc.Federation.local(parts, split="columns")

    def trick():
        seats = column_labels.Seats(("s0", "s1", "s2"))
        yield from collect_messages(column_labels.take_seat, seats, among=("s0",))
        turned = column_labels.Seats(("s0", "s2", "s1"))
        seeds = yield from collect_messages(column_labels.take_seat, turned, among=("s2",))
        yield column_labels._ask_once(column_labels.receive_seed, {"s0": SealedMessages(seeds["s0"], b"")})

    with pytest.raises(QuorumLost) as lost:
        fed.run(trick())
    assert lost.value.missing == {"s0": "keys-refused"}


def refused(trick, policy="none", sites=3, clusters=3, **options):
    """The code with which sites refuse what a coordinator tries once seats are taken, if they do."""
    X, parts = table(sites=sites, clusters=clusters)
    fed = fc.Federation.local(parts, split="columns", policy=policy, **options)

    def script():
        made, seats = yield from begun(fed, X, clusters)
        yield from trick(fed, made, seats)

    try:
        fed.run(script())
    except QuorumLost as lost:
        (code,) = set(lost.missing.values())
        return code
    return None


def put_on_rows(fed, made, seats):
    yield from each(column_split.place_centers, column_split.CenterPlacement(rows=np.array([3, 7])))
    yield from entered(fed, made, (yield from column_labels.assign_seats(fed.parties, 2)))


def weighed_by_one_row(fed, made, seats):
    weights = np.eye(3, made.rows)
    yield from each(column_split.apply_weights, column_split.RowWeights(0, weights, True, True, np.full(3, -1)))
    yield from entered(fed, made, (yield from column_labels.assign_seats(fed.parties, 2)))


def put_on_rows_and_left_there(fed, made, seats):
    yield from each(column_split.place_centers, column_split.CenterPlacement(rows=np.array([3, 7])))
    yield from each(
        column_labels.move_to_label_means, column_labels.LabelAssignment(np.full(made.rows, 9, np.uint8), 2)
    )
    yield from entered(fed, made, (yield from column_labels.assign_seats(fed.parties, 2)))


@pytest.mark.parametrize("trick", [put_on_rows, put_on_rows_and_left_there, weighed_by_one_row])
def test_no_labels_are_opened_from_centres_on_single_rows(trick):
    # For every row k, its label would tell whether it is nearer to row 3 or to row 7.
    assert refused(trick) == "keys-refused"


def test_a_site_with_rules_moves_no_centre_to_a_few_rows():
    def trick(alone):
        labels = np.zeros(90, np.uint8)
        labels[:alone] = 1
        return lambda *_: each(column_labels.move_to_label_means, column_labels.LabelAssignment(labels, 3))

    masked = {"policy": "standard", "aggregation": "secure"}
    assert refused(trick(1), **masked) == "class-too-small"
    assert refused(trick(4), **masked) == "class-too-small"
    assert refused(trick(5), **masked) is None
    assert refused(trick(1), aggregation="secure") is None


def test_seats_that_were_asked_about_different_rows_do_not_compare_them():
    def trick(fed, made, seats):
        spans = {
            p: column_split.RowSpan(at, at + 64, made.unit) for p, at in zip(seats.parties, (0, 0, 1), strict=True)
        }
        mail = {
            p: SealedMessages({}, wire.encode(column_labels.RowComparison(seats, span))) for p, span in spans.items()
        }
        sent = group_by_recipient((yield Ask(column_labels.enter_comparison, "relay", messages=mail, asked_once=True)))
        yield from forward_messages(column_labels.continue_comparison, sent, wire.encode(seats))

    assert refused(trick) == "keys-refused"


def test_a_site_without_a_seat_is_not_left_out_of_the_sums():
    assert refused(entered, sites=4) == "keys-refused"


@pytest.mark.parametrize("early", [1, 2, 6])
def test_a_comparison_is_not_opened_before_its_end(early):
    # With six clusters, one exchange too few would tell which clusters beat some of the others.
    def trick(fed, made, seats):
        ask = wire.encode(column_labels.RowComparison(seats, column_split.RowSpan(0, made.rows, made.unit)))
        heard = yield from forward_messages(column_labels.enter_comparison, {party: {} for party in seats.parties}, ask)
        for _ in range(secret_argmin.rounds(6) - early):
            heard = yield from forward_messages(column_labels.continue_comparison, heard, wire.encode(seats))
        mail = {party: SealedMessages(own, wire.encode(seats)) for party, own in heard.items()}
        yield column_labels._ask_once(column_labels.finish_comparison, mail)

    assert refused(trick, clusters=6) == "keys-refused"


@pytest.mark.parametrize("opens", ["labels", "distances"])
def test_a_served_site_of_a_study_that_opens_labels_tells_no_distances(opens, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    (tmp_path / "site.toml").write_text(
        'name = "north"\nsource = "rows.csv"\nstate = "state"\n[policy]\nmin_rows = 5\n'
    )
    text = f'name = "s"\nsplit = "columns"\n[cluster]\nmethod = "k-means"\nk = 2\ninit = "box"\nopens = "{opens}"\n'
    text += '[sites.north]\ncolumns = ["a", "b"]\n' + "".join(
        f'[sites.{name}]\ncolumns = ["{name}"]\n' for name in ("east", "west")
    )
    own, cohort = open_study_server(read_site_file(tmp_path / "site.toml"), text), ("north", "east", "west")
    assert isinstance(
        own.answer(Call("1-s", 1, "column_split.prepare", column_split.Preparation(), "each", cohort)), SealedAnswer
    )
    place = column_split.CenterPlacement(uniforms=np.random.RandomState(0).rand(2, 4)[:, :2])
    assert isinstance(own.answer(Call("1-s", 2, "column_split.place_centers", place, "each", cohort)), SealedAnswer)
    reply = own.answer(
        Call("1-s", 3, "column_split.measure_distances", column_split.RowSpan(0, 40, -90), "total", cohort)
    )
    assert isinstance(reply, SealedAnswer) if opens == "distances" else reply.code == "handler-not-allowed"


def test_a_study_opens_labels_and_its_report_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, parts = table()
    text = 'name = "quiet"\nsplit = "columns"\n[cluster]\nmethod = "k-means"\nk = 3\nopens = "labels"\n'
    text += f"init = {json.dumps(X[:3].tolist())}\n"
    for name, part in parts.items():
        lines = [f"{name}.a,{name}.b", *(",".join(map(repr, row)) for row in part.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        text += f'[sites.{name}]\nsource = "{name}.csv"\n'
    (tmp_path / "study.toml").write_text(text)
    assert main(["run", "study.toml"]) == 0
    assert "objective" not in capsys.readouterr().out.splitlines()[0]
    assert main(["report", "runs/quiet"]) == 0
    assert "Only labels were revealed" in (tmp_path / "runs" / "quiet" / "report.html").read_text()
    assert main(["audit", "runs/quiet"]) == 0
    assert "No row recovered" in capsys.readouterr().out
    assert main(["export", "runs/quiet", "--to", "csv"]) == 0
