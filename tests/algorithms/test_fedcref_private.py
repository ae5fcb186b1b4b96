"""FedCRef with an epsilon: what leaves is sums under noise that a site paid for; no row moves one by more than one."""

import dataclasses
import os
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedclust as fc
from fedclust.algorithms.autoencoders import private_gradients
from fedclust.algorithms.autoencoders.autoencoder import draw_weights, layers
from fedclust.algorithms.fedcref import fedcref_site, private_loop, private_site
from fedclust.algorithms.fedcref.private_site import ClusterRule, ModelsQuestion
from fedclust.algorithms.private_kmeans.private_questions import Box, OffsetsQuestion
from fedclust.app.audit.membership_attack import empirical_epsilon, epsilon_lower_bound
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call
from fedclust.core.errors import QuorumLost, StudyError, WireError
from fedclust.core.noise_price import NOISE_UNITS_PER_ONE, Noisy, Price
from fedclust.core.site_interface import View
from fedclust.federation.local_sites import LocalSites
from fedclust.models import private_deep
from fedclust.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from fedclust.site import noise_budget
from fedclust.site.policy import Policy, find_policy
from fedclust.site.privacy_spending import PrivacySpending
from fedclust.site.server import SiteServer
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source
from papers.deep_sites import affordable, images, populate, spoilt
from reaping import Killed, around, nothing_hidden_twice, reaped

pytest.importorskip("opendp")
pytest.importorskip("torch", reason="torch is not installed: pip install 'fedclust[deep]'")
DIGITS = load_digits()
RNG = np.random.default_rng(0)
WIDTH = 6
SIZES = layers(WIDTH, (3,))
BOX = Box(np.zeros(WIDTH), np.ones(WIDTH), np.ones(WIDTH))
MODELS = private_gradients.round_weights(
    np.stack([draw_weights(SIZES, np.random.default_rng(i)) * 3 for i in range(4)])
)
LIMITS = np.where(RNG.random(MODELS.shape) < 0.5, -8, 8).astype(np.float32)  # as large as a question may have them
SHARP = np.zeros((2, MODELS.shape[1]), np.float32)
SHARP[:, 3 * WIDTH : 3 * WIDTH + 3] = 7.5  # three hidden values that make every slope longer than one
OWN = {"here": (0, 1), "there": (2, 3)}
DELTA = 1e-6
HELD = {"a": (0, 1), "b": (1, 4), "c": (4, 0)}


def rows_of(number, classes, per_class):
    return np.concatenate([np.flatnonzero(DIGITS.target == c)[60 * number :][:per_class] for c in classes])


def federation(aggregation="plain", per_class=50, **more):
    """Three sites of two digits each, and the clusters they begin with."""
    rows = {p: rows_of(i, own, per_class) for i, (p, own) in enumerate(HELD.items())}
    start = {p: spoilt(np.repeat([0, 1], per_class), 2, 0.1, np.random.default_rng(5)) for p in HELD}
    return fc.Federation.local({p: DIGITS.data[r] for p, r in rows.items()}, aggregation=aggregation, **more), start


def look(models=MODELS, how="models", price=1.0):
    points = models.astype(float) if how == "models" else np.random.default_rng(1).normal(size=(4, 2))
    axes = np.linalg.qr(np.random.default_rng(2).normal(size=(WIDTH, 2)))[0] if how == "centers" else np.zeros((0, 0))
    return ModelsQuestion(Price(price), BOX, SIZES, ClusterRule(how, axes, points, OWN), models, OWN)


def asks(**kind):
    """Every question that tells of rows."""
    places = OffsetsQuestion(Price(1.0), BOX, np.eye(WIDTH)[:, :2], np.zeros((2, 2)), np.zeros((2, 2)), 2, 0.5)
    site = private_site
    others = (site.own_gradients, site.community_gradients, site.count_wins, site.count_votes, site.sum_errors)
    return [(site.own_sums, places), *((other, look(**kind)) for other in others)]


def turn(X, party="here", memory=None):
    return HandlerContext(SiteData(party, open_source(np.asarray(X), site=party)), (0, 1), memory or {}, "finite")


def summed(handler, ask, X, party="here"):
    """The sums before noise, as whole numbers."""
    return np.array(handler.answer(turn(X, party), ask).sums.to_integers(), object).ravel()


TABLES = {
    "usual": RNG.uniform(size=(9, WIDTH)),
    "far out": RNG.normal(size=(9, WIDTH)) * 1e200,
    "twice": np.full((3, WIDTH), 0.3),
    "odd": np.array([[np.nan] * WIDTH, [np.inf, *[0.5] * 5], [5e-324, 1e300, -1e300, 0, 1, 1], [0.5] * WIDTH]),
}


@pytest.mark.parametrize("kind", [{}, {"models": LIMITS}, {"how": "centers"}], ids=["models", "limits", "centers"])
@pytest.mark.parametrize("table", TABLES)
def test_without_a_row_each_sum_lacks_that_rows_own_term_which_has_norm_one_at_most(table, kind):
    X = TABLES[table]
    for handler, ask in asks(**kind):
        whole = summed(handler, ask, X)
        for i in range(len(X)):
            moved = whole - summed(handler, ask, np.delete(X, i, axis=0))
            assert sum(moved**2) <= NOISE_UNITS_PER_ONE**2, handler.name
            assert (moved == summed(handler, ask, X[i : i + 1])).all(), handler.name


def test_the_slopes_of_many_wide_rows_are_the_sum_of_what_each_adds_alone():
    rng, sizes = np.random.default_rng(3), layers(200, (16, 5))
    X, models = private_gradients.round_values(rng.uniform(size=(90, 200))), rng.uniform(-8, 8, (2, 6797))
    models, of = private_gradients.round_weights(models), rng.integers(-1, 2, 90)
    assert models.shape[1] == sum((a + 1) * b for a, b in pairwise(sizes))
    whole = private_gradients.sum_clipped_gradients(models, X, of, sizes)
    alone = [private_gradients.sum_clipped_gradients(models, X[[i]], of[[i]], sizes) for i in range(90)]
    assert np.array_equal(whole, np.sum(alone, axis=0))
    assert max(np.linalg.norm(one.astype(float)) for one in alone) <= NOISE_UNITS_PER_ONE
    errors = private_gradients.errors(models, X, sizes)
    assert np.array_equal(errors[:, 7:8], private_gradients.errors(models, X[7:8], sizes))


GIVEN = ClusterRule("told", np.zeros((0, 0)), np.zeros((0, 0)), OWN)


def by_label(handler, X, labels):
    """The sums before noise where rows came with labels."""
    source = open_source(np.asarray(X), site="here")
    kept = {"given": private_deep.labels_taking_part(labels, source)}
    answer = handler.answer(turn(X, memory=kept), dataclasses.replace(look(), rule=GIVEN))
    return np.array(answer.sums.to_integers(), object).ravel()


@pytest.mark.parametrize("table", TABLES)
def test_without_a_row_and_its_label_each_sum_lacks_that_rows_own_term_and_no_other_row_gets_its_label(table):
    X = TABLES[table]
    labels = np.random.default_rng(8).integers(-1, 2, len(X))
    labels[:3] = [1, 0, 1]
    for handler, _ in asks()[1:]:
        whole = by_label(handler, X, labels)
        for i in range(len(X)):
            moved = whole - by_label(handler, np.delete(X, i, axis=0), np.delete(labels, i))
            assert sum(moved**2) <= NOISE_UNITS_PER_ONE**2, handler.name
            assert (moved == by_label(handler, X[i : i + 1], labels[i : i + 1])).all(), handler.name
            gap = np.where(np.arange(len(X))[:, None] == i, np.nan, X)
            assert (whole - by_label(handler, gap, labels) == moved).all(), handler.name


def test_another_row_or_another_label_in_a_rows_place_moves_a_sum_by_two_terms_at_most():
    X, labels = TABLES["usual"], np.array([0, 1, 1, 0, 1, 0, 0, 1, -1])
    for handler, _ in asks()[1:]:
        whole = by_label(handler, X, labels)
        for i in range(len(X)):
            place = np.arange(len(X)) == i
            for row in (X[i], np.ones(WIDTH), np.full(WIDTH, np.inf)):
                other = by_label(handler, np.where(place[:, None], row, X), np.where(place, 1 - labels, labels))
                assert sum((whole - other) ** 2) <= (2 * NOISE_UNITS_PER_ONE) ** 2, handler.name


def test_labels_are_kept_beside_what_else_a_run_remembers():
    kept = private_site.remember_labels.answer(turn(TABLES["usual"], memory={"weights": np.ones(2)}), LABELS)
    assert kept.memory.keys() == {"weights", "given"}


LABELS = private_site.GivenLabels(np.zeros(9, np.int64))


def told_code(policy, rows=TABLES["usual"]):
    desk = SiteServer(SiteData("here", open_source(rows, site="here")), policy)
    return getattr(desk.answer(Call("run", 1, "private_site.remember_labels", LABELS, "each", ("here",))), "code", None)


def test_a_site_with_a_budget_takes_labels_from_nobody_and_no_site_tells_by_them_how_many_rows_it_has():
    assert told_code(Policy("p", epsilon=8.0)) == "not-private"
    assert told_code(Policy("p", min_rows=9)) is None
    assert told_code(Policy("p", min_rows=10)) is None


WRONG_LABELS = {
    "whole numbers": [0.0, 1.7] * 50,
    "not whole numbers": ["x", "y"] * 50,
    "from 0 to 2": [0, 2] * 50,
    "from -2 to 1": [-2, 1] * 50,
    "99 labels": [0] * 99,
}


@pytest.mark.parametrize("said", WRONG_LABELS)
def test_labels_that_do_not_fit_are_refused_in_words(said):
    fed, start = federation()
    with pytest.raises(StudyError, match=said):
        fc.FedCRef(2, init=start | {"b": WRONG_LABELS[said]}, epsilon=8.0, bounds=(0, 16)).fit(fed)


def test_how_many_clusters_there_are_is_not_taken_from_labels():
    fed, start = federation()
    with pytest.raises(StudyError, match="n_clusters"):
        fc.FedCRef(init=start, epsilon=8.0, bounds=(0, 16)).fit(fed)


def test_labels_where_the_rows_are_not_or_where_a_site_has_a_budget_are_refused_in_words(monkeypatch):
    fed, start = federation(policy=Policy("p", epsilon=8.0))
    model = fc.FedCRef(2, init=start, epsilon=1.0, bounds=(0, 16))
    with pytest.raises(StudyError, match="budget"):
        model.fit(fed)
    fed, start = federation()
    fed.local_sites = LocalSites()  # as where the sites are elsewhere
    with pytest.raises(StudyError, match="works only if all sites are in one process"):
        model.protocol(fed)


@pytest.mark.parametrize("weight", [8.0, 1.0, 2.0**-20])
@pytest.mark.parametrize("depth", [2, 40, 150, 400])
def test_however_many_layers_a_model_has_no_row_adds_more_than_norm_one(depth, weight):
    sizes = (4,) * (depth + 1)
    count = sum((a + 1) * b for a, b in pairwise(sizes))
    models = np.stack([np.full(count, weight), np.where(np.random.default_rng(depth).random(count) < 0.5, -8, 8)])
    models[0, -20:] = [
        *np.repeat([8, -8, 8, -7.99], 4),
        *[0] * 4,
    ]  # what goes in cancels, what comes back grows 32-fold
    X = private_gradients.round_values(
        np.vstack([np.random.default_rng(1).uniform(size=(5, 4)), np.zeros(4), np.ones(4)])
    )
    for of in (np.zeros(7, np.int64), np.ones(7, np.int64)):
        whole = private_gradients.sum_clipped_gradients(models, X, of, sizes)
        for i in range(7):
            moved = whole - private_gradients.sum_clipped_gradients(models, np.delete(X, i, axis=0), of[1:], sizes)
            assert sum(int(one) ** 2 for one in moved.ravel()) <= NOISE_UNITS_PER_ONE**2
            assert np.array_equal(moved, private_gradients.sum_clipped_gradients(models, X[[i]], of[[i]], sizes))


def test_a_desk_answers_no_question_about_models_of_many_layers():
    sizes = (WIDTH,) * 151
    deep = np.full((2, 150 * WIDTH * (WIDTH + 1)), 8.0, np.float32)
    own = {"here": (0, 1)}
    ask = ModelsQuestion(
        Price(2.0**-44), BOX, sizes, ClusterRule("models", np.zeros((0, 0)), deep.astype(float), own), deep, own
    )
    desk = SiteServer(SiteData("here", open_source(TABLES["usual"], site="here")), Policy("free"))
    reply = desk.answer(Call("run", 1, "private_site.own_gradients", ask, "each", ("here",)))
    assert reply.code == "not-understood"
    assert not desk.gate.noise_budget.spending.purchases


def test_a_slope_by_hand():
    # x = 1, w1 = 1: h = 1; w2 = 0: out = 1/2; what comes back is (1/2 - 1) 1/2 1/2 = -1/8, to the second layer only.
    found = private_gradients.sum_clipped_gradients(
        np.array([[1.0, 0, 0, 0]]), np.array([[1.0]]), np.array([0]), (1, 1, 1)
    )
    assert (found[0] / NOISE_UNITS_PER_ONE).round(6).tolist() == [0, 0, -0.125, -0.125]
    # Cut to norm one where it is longer: 784 columns all wrong by nearly one, through a hidden value of 60.
    long = np.zeros((1, 784 * 2 + 785))
    long[0, 784] = 60.0 / 8  # a bias that the ReLU lets pass
    cut = private_gradients.sum_clipped_gradients(long, np.ones((1, 784)), np.array([0]), (784, 1, 784))
    assert 1 - 1e-5 < np.linalg.norm(cut[0] / NOISE_UNITS_PER_ONE) <= 1


def test_slopes_are_those_of_torch():
    import torch

    sizes = layers(20, (6, 4))
    weights = private_gradients.round_weights(draw_weights(sizes, np.random.default_rng(0)))
    X = private_gradients.round_values(np.random.default_rng(1).uniform(size=(5, 20)))
    found = (
        private_gradients.sum_clipped_gradients(weights[None], X, np.zeros(5, np.int64), sizes)[0] / NOISE_UNITS_PER_ONE
    )
    total = np.zeros(len(weights))
    for x in torch.tensor(X):
        held = torch.tensor(weights.astype(float), requires_grad=True)
        h, at = x, 0
        for number, (a, b) in enumerate(pairwise(sizes)):
            z = h @ held[at : at + a * b].reshape(a, b) + held[at + a * b : at + (a + 1) * b]
            h, at = (torch.sigmoid(z) if number == len(sizes) - 2 else torch.relu(z)), at + (a + 1) * b
        (((h - x) ** 2).sum() / 2).backward()
        slope = held.grad.numpy()
        total += slope / max(np.linalg.norm(slope), 1.0)
    assert np.abs(found - total).max() < 2e-3 * np.abs(total).max()


def test_wins_are_those_of_the_association_without_noise():
    from fedclust.algorithms.fedcref import association

    X = TABLES["usual"]
    sums = np.array(summed(private_site.count_wins, look(), X), float).reshape(4, 5) / NOISE_UNITS_PER_ONE * np.sqrt(5)
    errors = private_gradients.errors(MODELS, private_gradients.round_values(X), SIZES)
    labels = errors[:2].argmin(axis=0)
    shares = association.win_shares({"here": errors[:2], "there": errors[2:]}, labels, "here")
    expected = np.concatenate([shares["here"], shares["there"]]).T * np.bincount(labels, minlength=2)[:, None]
    assert np.allclose(sums[:2, :4], expected, atol=1e-4)
    assert np.allclose(sums[:2, 4], np.bincount(labels, minlength=2), atol=1e-4)
    assert not sums[2:].any()  # another site's clusters


BROKEN = {
    "other columns": {"sizes": layers(WIDTH + 1, (3,))},
    "no such model": {"own": {"here": (0, 9), "there": (2, 3)}},
    "weights too large": {"models": LIMITS * 2},
    "weights that are no numbers": {"models": np.full_like(MODELS, np.nan)},
    "too few weights": {"models": MODELS[:, 1:]},
    "more layers": {"sizes": (WIDTH, 3, 3, WIDTH)},
    "no site": {"own": {}, "rule": ClusterRule("models", np.zeros((0, 0)), MODELS.astype(float), {})},
    "other clusters": {"own": {"here": (0,), "there": (2, 3)}},
    "an unknown way": {"rule": ClusterRule("dice", np.zeros((0, 0)), MODELS.astype(float), OWN)},
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_question_that_makes_no_sense_is_refused_before_a_row_is_read(how, monkeypatch):
    monkeypatch.setattr(HandlerContext, "blocks", lambda *_: pytest.fail("rows were read"))
    for handler, ask in asks()[1:]:
        with pytest.raises(WireError):
            handler.answer(turn(TABLES["usual"]), dataclasses.replace(ask, **BROKEN[how]))


WITH = np.vstack([TABLES["usual"], np.ones(WIDTH)])


def strongest(name, claimed, runs, louder=1.0):
    """The strongest test of membership: by one who knows all other rows and what the row would add."""
    own = {"here": (0, 1)}
    ask = dataclasses.replace(look(price=rho_from_epsilon(claimed, DELTA) * louder), models=SHARP, own=own)
    ask = dataclasses.replace(ask, rule=ClusterRule("models", np.zeros((0, 0)), SHARP.astype(float), own))
    till, handler = noise_budget.NoiseBudget(Policy("free")), HANDLERS[name]
    exact = {len(t): handler.answer(turn(t), ask) for t in (WITH, TABLES["usual"])}  # the same each time
    there, gone = (one.sums.to_floats().ravel() for one in exact.values())
    assert np.linalg.norm(there - gone) > 0.99  # a row that adds as much as one can

    def once(table):
        call = Call(os.urandom(8).hex(), 1, name, ask, "total", ("here",))
        return till.answer_with_noise(call, handler.release, lambda: exact[len(table)]).sums.to_floats().ravel()

    scored = {"score": lambda seen: float(seen @ (there - gone))}
    return empirical_epsilon(once, WITH, TABLES["usual"], runs=runs, delta=DELTA, **scored)


@pytest.mark.parametrize("name", ["private_site.own_gradients", "private_site.count_votes"])
def test_no_membership_test_finds_more_than_the_claimed_epsilon(name):
    claimed, runs = 1.0, 120
    assert epsilon_lower_bound(runs // 2, 0, runs // 2, delta=DELTA) > claimed + 1  # so many runs could show it
    assert strongest(name, claimed, runs).epsilon <= claimed


def test_the_same_test_refutes_a_claim_where_noise_is_ten_times_too_small():
    assert strongest("private_site.count_votes", 1.0, 600, louder=100.0).epsilon > 1.0


def watched(monkeypatch):
    """Names of all questions that desks answered."""
    seen, plain = set(), SiteServer.answer
    monkeypatch.setattr(SiteServer, "answer", lambda desk, call: seen.add(call.handler) or plain(desk, call))
    return seen


@pytest.mark.parametrize("start", ["kmeans", "given"])
def test_all_that_a_run_asks_about_rows_is_answered_under_noise_and_costs_its_epsilon(start, monkeypatch):
    seen = watched(monkeypatch)
    monkeypatch.setattr(private_loop, "MODEL_STEPS", 3)
    fed, given = federation("plain")
    model = fc.FedCRef(2, init=given if start == "given" else start, epsilon=8.0, bounds=(0, 16)).fit(fed)
    rowless = {name for name in seen if not issubclass(HANDLERS[name].release, Noisy)}
    assert rowless <= {"private_site.remember_labels"}
    assert model.epsilon_ == pytest.approx(8.0, rel=1e-6)
    assert model.reported_epsilon_ < model.epsilon_
    for desk in fed.local_sites.values():
        assert epsilon_from_rho(desk.gate.noise_budget.spending.spent_rho, DELTA) == pytest.approx(8.0, rel=1e-6)
    assert "differential privacy" in model.notes_[0]
    assert any("given" in note for note in model.notes_) == (start == "given")


def test_clusters_and_communities_are_found_where_noise_is_small(tmp_path):
    fed, start = federation("secure")
    model = fc.FedCRef(2, init=start, epsilon=1000.0, bounds=(0, 16)).fit(fed)
    for number, own in enumerate(np.split(model.labels_, 3)):
        truth = DIGITS.target[rows_of(number, tuple(HELD.values())[number], 50)]
        assert fc.agreement.accuracy(own, truth) > 0.95  # 0.9 to begin with
    assert model.n_communities_ >= 2
    assert len(model.cluster_sizes_) == model.n_communities_
    assert "2 of 3 sites" in " ".join(model.notes_)
    again = fc.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(fed), model.predict(fed))
    assert again.epsilon_ == model.epsilon_
    assert again.init == "given"  # a saved model does not hold the rows' labels


def test_rows_that_are_not_finite_are_left_out_with_their_labels_and_belong_nowhere():
    _, start = federation()
    odd = np.full((4, 64), 3.0)
    odd[:, 7] = [np.nan, np.inf, -np.inf, 1e305]
    rows = {
        p: np.insert(DIGITS.data[rows_of(i, own, 50)], [0, 0, 50, 100], odd, 0)
        for i, (p, own) in enumerate(HELD.items())
    }
    given = {p: np.insert(own, [0, 0, 50, 100], [1, 0, 1, 0]) for p, own in start.items()}
    model = fc.FedCRef(2, init=given, epsilon=1000.0, bounds=(0, 16)).fit(fc.Federation.local(rows))
    there = np.insert(np.ones(100, bool), [0, 0, 50, 100], False)
    for number, own in enumerate(np.split(model.labels_, 3)):
        truth = DIGITS.target[rows_of(number, tuple(HELD.values())[number], 50)]
        assert (own[~there] == -1).all()
        assert fc.agreement.accuracy(own[there], truth) > 0.95
    found = model.assign(rows["a"], "a")
    assert (found.novel[~there] & (found.labels[~there] == -1) & ~found.local[~there]).all()
    assert found.novel[there].mean() < 0.5
    assert np.array_equal(model.predict(rows["a"], "a")[there], model.predict(rows["a"][there], "a"))


def test_a_column_whose_bounds_are_one_value_does_not_make_every_row_novel():
    fed, start = federation()
    limits = [(0, 0)] * 24 + [(0, 16)] * 40  # under which models learn what is in the middle of each column's bounds
    model = fc.FedCRef(2, init=start, epsilon=1000.0, bounds=limits).fit(fed)
    assert (model.predict(fed) == -1).mean() < 0.5  # few, as a rule; how much is usual is under noise, too


def test_where_rows_are_too_few_for_the_noise_the_result_says_so(monkeypatch):
    monkeypatch.setattr(private_loop, "MODEL_STEPS", 3)
    fed, _ = federation(per_class=5)
    model = fc.FedCRef(2, epsilon=0.5, bounds=(0, 16)).fit(fed)
    assert any(note.startswith("Too few rows for this epsilon") for note in model.notes_)


WRONG = {
    "bounds": {"bounds": None},
    "n_clusters": {"n_clusters": None},
    "init": {"init": "dec"},
    "association": {"association": "paper"},
    "epsilon": {"epsilon": -1.0},
    "delta": {"delta": 0.0},
    "delta is 0.5": {"delta": 0.5},
    "quorum": {"quorum": 2},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_be_taken_from_rows_without_noise_is_refused(name):
    fed, _ = federation()
    with pytest.raises(StudyError, match=name):
        fc.FedCRef(**({"n_clusters": 2, "epsilon": 8.0, "bounds": (0, 16)} | WRONG[name])).fit(fed)


def test_a_strict_site_with_a_budget_takes_part_until_it_is_spent(monkeypatch):
    monkeypatch.setattr(private_loop, "MODEL_STEPS", 2)
    strict = dataclasses.replace(find_policy("nhs"), epsilon=8.0, delta=DELTA)
    fed, _ = federation("secure", policy=strict)
    model = fc.FedCRef(2, epsilon=6.0, bounds=(0, 16)).fit(fed)
    assert model.epsilon_ == pytest.approx(6.0, rel=1e-6)
    with pytest.raises(QuorumLost, match="budget"):
        fc.FedCRef(2, epsilon=6.0, bounds=(0, 16), random_state=1).fit(fed)


def weights_asked():
    """The questions by which weights leave without noise."""
    plan = fedcref_site.TrainingPlan(View(np.full(WIDTH, 1, np.int32)), WIDTH, 0)
    train = fedcref_site.TrainQuestion(plan, draw_weights(layers(WIDTH), RNG), 1, 1, ("here", "there", "yonder"))
    step = fedcref_site.CommunityStep(plan, {"here": (0,)}, draw_weights(layers(WIDTH), RNG), 1, 1, 0)
    return [("fedcref_site.train", train, "relay"), ("fedcref_site.train_community", step, "total")]


def code_of(policy, name, message, want):
    desk = SiteServer(SiteData("here", open_source(RNG.uniform(size=(40, WIDTH)), site="here")), policy)
    cohort = ("here", "there", "yonder")
    masks = "all" if want == "relay" else None
    return getattr(desk.answer(Call("run", 1, name, message, want, cohort, masks)), "code", None)


@pytest.mark.parametrize("policy", ["datashield", "standard", "tre", "nhs", "cms"])
def test_weights_leave_without_noise_only_where_the_site_agreed(policy):
    for name, message, want in weights_asked():
        assert code_of(find_policy(policy), name, message, want) == "weights-not-allowed"
        agreed = dataclasses.replace(find_policy(policy), weights=True)
        assert code_of(agreed, name, message, want) != "weights-not-allowed"


def test_a_site_that_asks_for_noise_refuses_weights_of_models_that_had_none_whatever_it_agreed_to():
    for name, message, want in weights_asked():
        assert code_of(Policy("p", epsilon=8.0, weights=True), name, message, want) == "not-private"


@pytest.mark.parametrize("every", [97, pytest.param(7, marks=pytest.mark.long)])
def test_killed_anywhere_a_run_ends_alike_and_pays_for_no_answer_that_left_twice(every, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(private_loop, "MODEL_STEPS", 1)
    monkeypatch.setattr(private_loop, "START_ROUNDS", 1)
    nothing_hidden_twice(monkeypatch)

    def fit(folder):
        fed, _ = federation("secure", per_class=10, run=folder)
        with fed:
            return fc.FedCRef(2, epsilon=8.0, bounds=(0, 16)).fit(fed).models_.tobytes()

    def dying(patch, at):
        reaper = reaped(patch, at)
        around(patch, PrivacySpending, "spend", reaper)
        around(patch, noise_budget.NoiseBudget, "_keep_answer", reaper)
        return reaper

    with monkeypatch.context() as patch:
        reaper = dying(patch, None)
        fit(tmp_path / "whole")
    assert reaper.passed > 100
    for at in range(1, reaper.passed + 1, every):
        seen, plain, folder = {}, SiteServer.answer, tmp_path / f"run-{at}"

        def kept(desk, call, seen=seen, plain=plain):
            reply = plain(desk, call)
            if call.handler.startswith(("fedcref", "private_site")) and hasattr(reply, "wire_bytes"):
                seen.setdefault((desk.party, call.question_digest), set()).add(reply.wire_bytes)
            return reply

        with monkeypatch.context() as patch:
            patch.setattr(SiteServer, "answer", kept)
            with patch.context() as death:
                dying(death, at)
                with pytest.raises(Killed):
                    fit(folder)
            first = fit(folder)
        assert fit(folder) == first
        assert all(len(replies) == 1 for replies in seen.values()), at


@pytest.mark.slow
def test_accuracy_by_epsilon():
    """Ten sites of MNIST, 500 rows of a class at each; printed with -s."""
    try:
        data = images("mnist")
    except fc.errors.DataError:
        pytest.skip("no MNIST in $FEDCLUST_DATA")
    found, first = {}, []
    for seed in range(2):
        size = affordable(data.y, 10, seed=seed, most=500)
        people = populate(data.y, 10, per_class=size, dirt=0.3, seed=seed)
        with fc.Federation.local({p: data.X[r] for p, r in people.rows.items()}, aggregation="secure") as fed:
            counts = {p: int(own.max()) + 1 for p, own in people.start.items()}
            first += [fc.agreement.accuracy(own, people.classes[p]) for p, own in people.start.items()]
            for start in ("labels", "kmeans"):
                for epsilon in (2, 8, 32):
                    given = people.start if start == "labels" else "kmeans"
                    model = fc.FedCRef(counts, init=given, epsilon=epsilon, bounds=(0, data.X.max())).fit(fed)
                    labels = np.split(model.labels_, np.cumsum([len(people.rows[p]) for p in fed.parties])[:-1])
                    own = {p: fc.agreement.accuracy(a, people.classes[p]) for p, a in zip(counts, labels, strict=True)}
                    acc = np.mean(list(own.values()))
                    told = (acc, model.n_communities_, people.shared_classes, len(model.isolated_))
                    found.setdefault((start, epsilon), []).append(told)
                    print(f"{start} seed {seed} S {size} epsilon {epsilon}:", *(f"{x:.3f}" for x in told), flush=True)  # noqa: T201
    for name, runs in found.items():
        print(*name, *(f"{x:.3f}" for x in np.mean(runs, axis=0)))  # noqa: T201
    at = {name: np.mean([run[0] for run in runs]) for name, runs in found.items()}
    assert at["labels", 8] > np.mean(first) + 0.1
    assert at["labels", 2] < at["labels", 32]
