"""Communities of clusters over sites: found without labels, the same in every mode, with nothing left undefined."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedclust as fc
from fedclust.algorithms.fedcref import fedcref_site, refinement_loop
from fedclust.core.effects import HANDLERS
from fedclust.core.site_interface import View
from fedclust.testing.faulty_engines import Faulty
from papers.deep_sites import Population, spoilt

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'fedclust[deep]'")
torch.set_num_threads(1)
DIGITS = load_digits()
CLEAR = np.isin(DIGITS.target, [0, 1, 4, 6, 7])
X, y = DIGITS.data[CLEAR], DIGITS.target[CLEAR]
QUICK = {
    "bounds": (0, 16),
    "rate": 3e-3,
    "rounds": 6,
    "max_iterations": 3,
    "epochs": 15,
    "closing": 1,
    "closing_epochs": 2,
}


PAIRS = ((0, 1), (1, 4), (4, 6), (6, 7), (7, 0), (0, 4))


def sites(count=6, dirt=0.2, per_class=40, seed=0):
    """Sites of two classes each; each class at two sites at least."""
    rng = np.random.default_rng(seed)
    left = {c: list(rng.permutation(np.flatnonzero(y == c))) for c in np.unique(y)}
    found = Population({}, {}, {})
    for number, own in enumerate(PAIRS[:count], start=1):
        rows = np.array([left[c].pop() for c in own for _ in range(per_class)])
        name = f"site-{number:02d}"
        found.rows[name], found.classes[name] = rows, y[rows]
        found.start[name] = spoilt(np.repeat([0, 1], per_class), 2, dirt, rng)
    return {p: X[rows] for p, rows in found.rows.items()}, found


def accuracy(model, fed, found):
    """Rows whose site's clusters agree with their class, as a mean over sites."""
    shares, at = [], 0
    for party in fed.parties:
        own = model.labels_[at : at + len(found.classes[party])]
        shares.append(fc.agreement.accuracy(own, found.classes[party]))
        at += len(own)
    return np.mean(shares)


def majority(model, fed, found):
    """For each community the classes that its sites' clusters mostly hold."""
    held, at = {}, 0
    for party in fed.parties:
        own, at = model.labels_[at : at + len(found.classes[party])], at + len(found.classes[party])
        for label in np.unique(own):
            held.setdefault(int(label), []).append(int(np.bincount(found.classes[party][own == label]).argmax()))
    return held


@pytest.fixture(scope="module")
def fitted():
    data, found = sites()
    fed = fc.Federation.local(data)
    return fc.FedCRef(init=found.start, **QUICK).fit(fed), fed, found


def test_communities_are_the_classes_that_sites_share(fitted):
    model, fed, found = fitted
    assert model.n_communities_ == found.shared_classes
    held = majority(model, fed, found)
    assert all(len(set(classes)) == 1 for classes in held.values())
    assert len({classes[0] for label, classes in held.items() if label < model.n_communities_}) == model.n_communities_
    assert (
        accuracy(model, fed, found)
        > 0.95
        > np.mean([fc.agreement.accuracy(found.start[p], found.classes[p]) for p in fed.parties])
    )
    assert model.cluster_sizes_.sum() + (model.labels_ >= model.n_communities_).sum() == len(model.labels_)
    assert model.history_[-1]["communities"] == model.n_communities_
    assert model.notes_[0].startswith("Not lossless")


def test_new_rows_get_a_community_and_what_fits_nowhere_is_novel(fitted):
    model, _, found = fitted
    first = next(iter(found.rows))
    own = X[found.rows[first]][:5]
    rows = np.concatenate([own, 16 - own])  # white on black is nothing that any model has seen
    answer = model.assign(rows, site=first)
    assert not answer.novel[:5].any()
    assert answer.novel[5:].all()
    assert (answer.errors[5:] > answer.errors[:5].max()).all()
    assert model.predict(rows, site=first).tolist() == [*answer.labels[:5].tolist(), -1, -1, -1, -1, -1]


def test_a_saved_model_predicts_alike(fitted, tmp_path):
    model, fed, _ = fitted
    again = fc.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(fed), model.predict(fed))
    assert np.array_equal(again.models_, model.models_)
    assert [own.tolist() for own in again.communities_] == [own.tolist() for own in model.communities_]


def one_class_in_common():
    """Three sites that all hold one class, and each another of its own; rows and the clusters to begin with."""
    held = {"a": [0, 1], "b": [0, 4], "c": [0, 6]}
    start = {p: np.unique(y[np.isin(y, own)], return_inverse=True)[1] for p, own in held.items()}
    return {p: X[np.isin(y, own)] for p, own in held.items()}, start


def test_a_class_of_one_site_stays_local_and_says_so():
    data, start = one_class_in_common()
    fed = fc.Federation.local(data)
    model = fc.FedCRef(init=start, **QUICK).fit(fed)
    assert model.n_communities_ == 1
    assert {site for site, _ in model.isolated_} == {"a", "b", "c"}
    assert any("no cluster of another site matches them (a, b, c)" in note for note in model.notes_)
    answer = model.assign(X[y == 4][:20], site="b")
    assert answer.local.mean() > 0.9
    assert not model.assign(X[y == 0][:20], site="b").local.any()


@pytest.mark.parametrize("mode", ["secure", "blind"])
def test_hidden_sums_give_the_bits_of_plain_ones(mode):
    data, found = sites(dirt=0.0)
    plan = fedcref_site.TrainingPlan(View(np.zeros(64, np.int32), np.zeros(64), np.full(64, 16.0)), 64, 0, rate=3e-3)
    course = refinement_loop.RunLength(
        rounds=2, iterations=2, epochs=20, closing_passes=1, closing_epochs=2, min_sites=3
    )
    begin = {p: fedcref_site.BeginQuestion(plan, 0, "kmeans", found.start[p]) for p in data}
    results = []
    for how in ("plain", mode):
        fed = fc.Federation.local(data, aggregation=how)
        results.append(fed.run(refinement_loop.fit(plan, begin, course))[0])
    plain, hidden = results
    assert len(plain.models)
    assert plain.models.tobytes() == hidden.models.tobytes()
    assert plain.usual_errors.tobytes() == hidden.usual_errors.tobytes()
    assert plain.history == hidden.history


def test_a_community_of_two_is_not_averaged_under_masks_and_says_so():
    data = {p: X[np.isin(y, own)] for p, own in {"a": [0, 1], "b": [0, 4], "c": [6, 7]}.items()}
    start = {
        p: np.unique(y[np.isin(y, own)], return_inverse=True)[1]
        for p, own in zip("abc", ([0, 1], [0, 4], [6, 7]), strict=True)
    }
    model = fc.FedCRef(init=start, **QUICK).fit(fc.Federation.local(data, aggregation="secure"))
    assert model.n_communities_ == 0
    assert any(
        "not averaged" in note and "each could compute the other's contribution" in note for note in model.notes_
    )


def test_a_stable_site_writes_its_models_once_more_when_the_run_closes():
    data, found = sites(count=5)
    fed = fc.Federation.local(data)
    asked = []

    class Watch:
        parties = fed.engine.parties

        def exchange(self, calls, *, timeout, quorum):
            asked.extend((call.handler, party) for party, call in calls.items())
            return fed.engine.exchange(calls, timeout=timeout, quorum=quorum)

    fed.use_engine(Watch())
    model = fc.FedCRef(init=found.start, **(QUICK | {"stability": 0.5})).fit(fed)
    assert [one["active"] for one in model.history_] == [0, 0]  # the iteration, and the closing pass
    assert sum(name == "fedcref_site.train" for name, _ in asked) == 5 + 5  # in each, once a site
    for desk in fed.local_sites.values():
        assert not any(name.startswith("e/") for name in desk.memory[fed.run_id])


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_share_of_rows_asked_for_trains(share):
    data, found = sites(count=4)
    fed = fc.Federation.local(data)
    fc.FedCRef(init=found.start, sure=share, **(QUICK | {"rounds": 2, "max_iterations": 1, "closing": 0})).fit(fed)
    for desk in fed.local_sites.values():
        memory = desk.memory[fed.run_id]
        several = len(np.unique(memory["labels"])) > 1  # one cluster alone has nothing to doubt
        for cluster in np.unique(memory["labels"]):
            own = memory["sure"][memory["labels"] == cluster]
            assert own.sum() == (int(share * (len(own) - 1)) + 1 if several else len(own))  # as np.quantile counts


def test_in_the_last_pass_all_rows_train():
    data, found = sites(count=4)
    fed = fc.Federation.local(data)
    seen = []

    class Watch:
        parties = fed.engine.parties

        def exchange(self, calls, *, timeout, quorum):
            found = fed.engine.exchange(calls, timeout=timeout, quorum=quorum)
            seen.extend(
                call.message.plan.sure for call in calls.values() if call.handler == "fedcref_site.train_community"
            )
            return found

    fed.use_engine(Watch())
    fc.FedCRef(init=found.start, **(QUICK | {"rounds": 1, "max_iterations": 1, "closing": 2})).fit(fed)
    passes = [share for share, before in zip(seen, [None, *seen], strict=False) if share != before]
    assert passes == [0.8, 1.0]


def test_an_isolated_clusters_model_trains_as_long_as_those_of_communities():
    data, start = one_class_in_common()
    errors = []
    for epochs in (2, 10):
        options = QUICK | {"max_iterations": 1, "closing_epochs": epochs}
        model = fc.FedCRef(init=start, **options).fit(fc.Federation.local(data))
        assert {site for site, _ in model.isolated_} == {"a", "b", "c"}
        errors.append(model.isolated_usual_[0])
    assert (errors[1] < errors[0] - 0.1).all()  # of logarithms


def test_the_same_seed_gives_the_same_bits_in_any_order_of_sites():
    data, found = sites(count=4)
    options = QUICK | {"rounds": 2, "max_iterations": 2}
    first = fc.FedCRef(init=found.start, **options).fit(fc.Federation.local(data, wire=True))
    second = fc.FedCRef(init=found.start, **options).fit(fc.Federation.local(dict(reversed(data.items()))))
    assert first.models_.tobytes() == second.models_.tobytes()
    assert first.sites_ == second.sites_


def test_a_site_that_leaves_is_missed_or_left_out():
    data, found = sites(count=5)
    options = QUICK | {"rounds": 2, "max_iterations": 2}

    def leaving(fed, step):
        fed.use_engine(Faulty(fed.engine, lambda at, party: "silent" if at >= step and party == "site-02" else None))
        return fed

    with pytest.raises(fc.QuorumLost, match="site-02"):
        fc.FedCRef(init=found.start, **options).fit(leaving(fc.Federation.local(data), 5))
    model = fc.FedCRef(init=found.start, quorum=0.5, **options).fit(leaving(fc.Federation.local(data), 5))
    assert "site-02" not in model.sites_
    assert any("site-02 did not contribute" in note for note in model.notes_)


def test_a_site_that_leaves_while_models_are_averaged_leaves_a_result():
    data, found = sites(count=5)
    fed = fc.Federation.local(data)
    left = []

    def leaving(_, party):
        return "silent" if left and party == "site-02" else None

    class Watch:
        parties = fed.engine.parties

        def exchange(self, calls, *, timeout, quorum):
            if any(call.handler == "fedcref_site.train_community" for call in calls.values()):
                left.append(True)
            return faulty.exchange(calls, timeout=timeout, quorum=quorum)

    faulty = Faulty(fed.engine, leaving)
    fed.use_engine(Watch())
    model = fc.FedCRef(init=found.start, quorum=0.5, **(QUICK | {"rounds": 2, "max_iterations": 2})).fit(fed)
    assert left
    assert any("site-02" in note for note in model.notes_)
    assert all(len(own) for site, own in zip(model.sites_, model.communities_, strict=True) if site != "site-02")


def test_a_cluster_that_no_row_prefers_is_dropped():
    data, found = sites(count=5)
    data["site-01"] = np.repeat(X[y == 0][:1], 80, axis=0)  # one image again and again, dealt to two clusters
    model = fc.FedCRef(init=found.start, **(QUICK | {"rounds": 2, "max_iterations": 2})).fit(fc.Federation.local(data))
    assert len(model.communities_[model.sites_.index("site-01")]) == 1
    assert len(np.unique(model.labels_[:80])) == 1


@pytest.mark.parametrize("width", [1, 3, 35])
def test_rows_of_any_width_have_models_that_fit_them(width):
    rng = np.random.default_rng(width)
    data = {p: rng.random((24, width)) + np.repeat([0, 3], 12)[:, None] for p in "abc"}
    model = fc.FedCRef(2, rounds=2, epochs=3, max_iterations=1, closing=0).fit(fc.Federation.local(data))
    assert np.isfinite(model.models_).all()
    assert len(model.labels_) == 72
    assert model.n_communities_ + len(model.isolated_) >= 1


def test_one_site_alone_keeps_its_clusters():
    model = fc.FedCRef(2, **QUICK).fit(X[np.isin(y, [0, 1])])
    assert model.n_communities_ == 0
    assert len(model.isolated_) == 2
    assert fc.agreement.accuracy(model.predict(X[np.isin(y, [0, 1])]), y[np.isin(y, [0, 1])]) > 0.9


def test_sites_of_one_cluster_and_tabular_rows_find_each_other():
    rng = np.random.default_rng(0)

    def rows(*centres):
        return np.concatenate([rng.normal(c, 0.3, (60, 5)) for c in centres])

    low, mid, high = [0, 5, 0, 5, 0], [5, 5, 5, 5, 5], [10, 0, 10, 0, 10]
    data = {"a": rows(low), "b": rows(low, high), "c": rows(high, mid), "d": rows(mid)}
    counts = {"a": 1, "b": 2, "c": 2, "d": 1}
    model = fc.FedCRef(counts, rate=3e-3, epochs=60, rounds=6, group_epochs=6, closing=0).fit(fc.Federation.local(data))
    assert model.n_communities_ == 3
    assert model.isolated_ == []


def test_the_number_of_clusters_is_estimated_where_it_is_not_given():
    rng = np.random.default_rng(1)
    data = {p: np.concatenate([rng.normal(c, 0.2, (30, 4)) for c in (0, 4, 8)]) for p in "ab"}
    model = fc.FedCRef(None, rate=3e-3, rounds=2, max_iterations=1, closing=0).fit(fc.Federation.local(data))
    assert [len(own) for own in model.communities_] == [3, 3]


def test_labels_to_begin_with_must_fit_the_rows():
    with pytest.raises(fc.DataError, match="init gives 3 labels for 10 rows"):
        fc.FedCRef(init={"a": [0, 1, 1]}).fit(fc.Federation.local({"a": np.random.default_rng(0).random((10, 3))}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"association": "close"}, "choose one of win, rival, paper"),
        ({"init": "random"}, "choose one of kmeans, encoded, dec"),
        ({"n_clusters": 0}, "at least 1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"closing": -1}, "closing is -1; it must not be negative"),
        ({"stability": 2}, "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options, sentence):
    with pytest.raises(fc.StudyError, match=sentence):
        fc.FedCRef(**options).fit(np.zeros((4, 2)))


def test_weights_leave_only_where_the_site_agreed():
    schema = HANDLERS["fedcref_site.train_community"].release.schema()
    assert schema["weights"].kind == "weights"
    data, found = sites(count=5)
    with pytest.raises(fc.QuorumLost, match="weights"):
        fc.FedCRef(init=found.start, **QUICK).fit(fc.Federation.local(data, policy="standard"))
