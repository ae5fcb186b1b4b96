"""FCAC as published: the server's stream by hand, nets that go on over rounds, memory that survives its process."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc
from fedclust.algorithms.fcac import Nodes, quartile, server_stream
from fedclust.app.analysis import describe
from fedclust.app.study import parse_study
from fedclust.kernels.resonance import Net

KINDS = [fc.FCAC(), fc.FCAC("published"), fc.FCAC(scale="standardise")]


@parametrize_with_checks(KINDS)
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    if check.func.__name__ == "check_clustering" and estimator.setting == "published":
        pytest.skip("of fifty rows the published nets make mostly single nodes")
    check(estimator)


def blobs(seed=0, rows=400, centers=((0, 0), (9, 0), (0, 9), (9, 9))):
    rng = np.random.default_rng(seed)
    centers = np.array(centers, float)
    y = rng.integers(len(centers), size=rows)
    return centers[y] + rng.normal(size=(rows, centers.shape[1])), y


def dealt(X, parties=4):
    return {f"p{i}": part for i, part in enumerate(np.array_split(X, parties))}


def test_the_third_quartile_is_numpys():
    rng = np.random.default_rng(0)
    for n in range(1, 40):
        wins = rng.integers(1, 9, n)
        assert quartile(wins) == np.percentile(wins, 75)


def test_often_winners_come_first_each_group_shuffled_by_the_published_stream():
    a = Nodes(
        np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1, 1, 5, 1]), 0, anew=False
    )  # quartile 2: only 3 is high
    b = Nodes(np.array([[5.0], [6.0]]), np.array([1, 1]), 0, anew=False)  # quartile 1: both are
    stream = server_stream({"b": b, "a": a}, 1, seed=0)
    np.random.seed(0)
    high, low = np.array([[3.0], [5.0], [6.0]]), np.array([[1.0], [2.0], [4.0]])
    np.random.shuffle(high)
    np.random.shuffle(low)
    assert stream.tolist() == [*high.tolist(), *low.tolist()]


def test_a_federated_run_is_the_nets_at_the_sites_and_one_at_the_server():
    X, _ = blobs()
    parts = dealt(X)
    model = fc.FCAC("published").fit(fc.Federation.local(parts, wire=True))
    nets = {p: Net.empty(2).learn(rows) for p, rows in parts.items()}
    stream = server_stream({p: Nodes(net.places, net.wins, 0, anew=False) for p, net in nets.items()}, 2, seed=0)
    server = Net.empty(2).learn(stream, server=True)
    assert np.array_equal(model.nodes_, server.places)
    assert np.array_equal(model.labels_, server.components()[server.nearest(X)[0]])
    assert model.n_clusters_ == server.components().max() + 1
    assert model.history_[0]["sent"] == len(stream)
    assert any("nodes sent stand for a single row" in note for note in model.notes_)


def test_later_rounds_go_on_with_all_nets():
    first, second = blobs(0)[0], blobs(1, centers=((30, 30), (40, 30)))[0]
    model = fc.FCAC("published").fit(fc.Federation.local(dealt(first)))
    model.partial_fit(fc.Federation.local(dealt(second)))
    server = Net.empty(2)
    nets = {p: Net.empty(2) for p in dealt(first)}
    for batch in (first, second):
        nets = {p: net.learn(dealt(batch)[p]) for p, net in nets.items()}
        answers = {p: Nodes(net.places, net.wins, 0, anew=False) for p, net in nets.items()}
        server = server.learn(server_stream(answers, 2, seed=0), server=True)
    assert np.array_equal(model.nodes_, server.places)
    assert model.n_iter_ == 2


def test_rounds_survive_the_process_in_model_and_run_folders(tmp_path):
    batches = [dealt(blobs(seed)[0]) for seed in range(3)]
    for setting in ("published", "default"):
        here = fc.FCAC(setting)
        for batch in batches:
            here.partial_fit(fc.Federation.local(batch))
        path = tmp_path / f"{setting}.json"
        for number, batch in enumerate(batches):
            folder = tmp_path / f"{setting}-{number}"
            with fc.Federation.local(batch, run=folder) as fed:
                if number:
                    model = fc.load(path).partial_fit(fed, after=tmp_path / f"{setting}-{number - 1}")
                else:
                    model = fc.FCAC(setting).fit(fed)
                model.save(path)
        assert np.array_equal(fc.load(path).nodes_, here.nodes_)
        assert np.array_equal(fc.load(path).node_labels_, here.node_labels_)
        assert not any("began anew" in note for note in model.notes_)


@pytest.mark.parametrize("setting", ["published", "default"])
def test_a_site_that_skips_a_round_keeps_its_memory_across_processes(setting, tmp_path):
    X, _ = blobs(rows=226)
    rounds = [{"a": X[:100], "b": X[100:103]}, {"a": X[103:203]}, {"a": X[203:223], "b": X[223:]}]
    here = fc.FCAC(setting)
    for number, batch in enumerate(rounds):
        here.partial_fit(fc.Federation.local(batch))
        with fc.Federation.local(batch, run=tmp_path / f"round-{number}") as fed:
            model = fc.load(tmp_path / "model.json") if number else fc.FCAC(setting)
            model.partial_fit(fed, after=tmp_path / f"round-{number - 1}") if number else model.fit(fed)
            model.save(tmp_path / "model.json")
        assert not any("began anew" in note for note in model.notes_)
    assert np.array_equal(model.nodes_, here.nodes_)
    assert model.sites_ == ["a", "b"]
    if setting == "default":
        assert model.node_rows_.sum() == 226


def test_each_site_whose_memory_is_not_at_hand_is_named(tmp_path):
    X, _ = blobs(rows=300)
    model = fc.FCAC().fit(fc.Federation.local({"a": X[:100], "b": X[100:200]}))
    path = model.save(tmp_path / "model.json")
    with fc.Federation.local({"a": X[200:250]}, run=tmp_path / "round-2") as fed:
        loaded = fc.load(path).partial_fit(fed)
    assert any("not at hand: a." in note for note in loaded.notes_)
    path = loaded.save(path)
    later = fc.Federation.local({"a": X[250:270], "b": X[270:290], "new": X[290:]})
    last = fc.load(path).partial_fit(later, after=tmp_path / "round-2")
    assert any("not at hand: b." in note for note in last.notes_)
    assert not any("began anew" in n for n in model.partial_fit(fc.Federation.local({"new": X[290:]})).notes_)


class Killed(BaseException):
    pass


def test_a_round_killed_at_any_answer_ends_with_the_same_bits(tmp_path):
    first, second = dealt(blobs(0)[0], 3), dealt(blobs(1)[0], 3)
    for setting in ("published", "default"):
        before = fc.FCAC(setting)
        with fc.Federation.local(first, run=tmp_path / setting / "first") as fed:
            before.fit(fed).save(tmp_path / setting / "model.json")
        expected = fc.load(tmp_path / setting / "model.json")
        expected.partial_fit(fc.Federation.local(second), after=tmp_path / setting / "first")
        for stop in range(1, 12):
            folder = tmp_path / setting / f"killed-{stop}"
            answers = 0

            def once(model, folder=folder, stop=stop, setting=setting):
                with fc.Federation.local(second, run=folder) as fed:
                    if stop:
                        for desk in fed.engine.desks.values():
                            desk.answer = counting(desk.answer, stop)
                    return model.partial_fit(fed, after=tmp_path / setting / "first")

            def counting(answer, stop):
                def counted(call):
                    nonlocal answers
                    answers += 1
                    reply = answer(call)
                    if answers == stop:
                        raise Killed
                    return reply

                return counted

            try:
                done = once(fc.load(tmp_path / setting / "model.json"))
            except Killed:
                done = once(fc.load(tmp_path / setting / "model.json"), stop=0)
            assert np.array_equal(done.nodes_, expected.nodes_)
            assert np.array_equal(done.node_labels_, expected.node_labels_)


def test_a_loaded_model_without_the_sites_memory_says_so(tmp_path):
    X, _ = blobs()
    path = fc.FCAC("published").fit(X).save(tmp_path / "model.json")
    again = fc.load(path).partial_fit(X)
    assert any("began anew" in note for note in again.notes_)
    with pytest.raises(fc.DataError, match="no memory of sites"):
        fc.load(path).partial_fit(X, after=tmp_path)


def test_sites_with_a_policy_refuse_the_published_setting_and_take_part_in_the_default():
    X, _ = blobs(rows=600)
    for setting in ("published", "default"):
        fed = fc.Federation.local(dealt(X), policy="standard")
        if setting == "published":
            with pytest.raises(fc.QuorumLost, match="does not allow"):
                fc.FCAC(setting).fit(fed)
        else:
            assert fc.FCAC(setting).fit(fed).n_clusters_ == 4


def test_a_full_memory_is_said():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)) * rng.uniform(1, 60, size=(400, 1))
    model = fc.FCAC("published", max_nodes=20).fit(fc.Federation.local(dealt(X)))
    assert len(model.nodes_) <= 20
    assert any("memory of 20 nodes is full at p0" in note for note in model.notes_)
    model = fc.FCAC(max_nodes=20).fit(fc.Federation.local(dealt(X)))
    assert len(model.nodes_) <= 20
    assert model.node_rows_.sum() == 400
    assert any("memory of 20 summaries is full" in note for note in model.notes_)


@pytest.mark.parametrize("setting", ["published", "default"])
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1.0, 2.0]]),
        np.full((40, 2), 3.0),
        np.column_stack([np.arange(60.0) % 7, np.full(60, 5.0)]),
        np.arange(4.0)[:, None],
        np.column_stack([np.arange(40.0), -np.arange(40.0), np.zeros((40, 3))]),
    ],
    ids=["one row", "identical rows", "a constant column", "fewer rows than a floor", "never settles"],
)
def test_degenerate_rows_have_defined_results(setting, X):
    for fed in (X, fc.Federation.local({"a": X, "one": X[:1]})):
        model = fc.FCAC(setting).fit(fed)
        for value in (model.nodes_, model.cluster_centers_, model.objective_, model.cluster_sizes_):
            assert np.isfinite(value).all()
        assert model.n_clusters_ >= 1
        labels = model.predict(X)
        assert ((labels >= 0) & (labels < model.n_clusters_)).all()


def test_a_published_net_may_lose_its_last_node_and_says_so():
    X = np.empty((20, 1))
    rng = np.random.default_rng(585)
    rng.integers(1, 9), rng.integers(11, 45)
    drawn = rng.normal(size=(20, 1))
    drawn[:10] *= 1e-3
    X[np.random.RandomState(0).permutation(20)] = drawn
    model = fc.FCAC("published").fit(fc.Federation.local({f"s{i}": X[5 * i : 5 * i + 5] for i in range(4)}))
    assert model.n_clusters_ == len(model.nodes_) == 0
    assert (model.labels_ == -1).all()
    assert (model.predict(X) == -1).all()
    assert model.notes_[-1].startswith("No node is left")


def test_columns_of_a_later_round_must_be_the_models():
    model = fc.FCAC().fit(blobs()[0])
    with pytest.raises(fc.DataError, match="other columns"):
        model.partial_fit(fc.Federation.local({"a": np.zeros((9, 3))}))


def test_parameters_are_checked():
    X, _ = blobs()
    for wrong, words in (
        ({"setting": "best"}, "setting is 'best'"),
        ({"floor": 1}, "floor is 1"),
        ({"max_nodes": 3}, "max_nodes is 3"),
        ({"scale": "log"}, "scale is 'log'"),
        ({"scale": "minmax"}, "needs public bounds"),
        ({"missing": "partial"}, "needs whole rows"),
    ):
        with pytest.raises(fc.StudyError, match=words):
            fc.FCAC(**wrong).fit(X)
    with pytest.raises(fc.StudyError, match="whole rows"):
        fc.FCAC().fit(fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns"))


STUDY = """name = "open"
[cluster]
method = "fcac"
floor = 6
[sites.a]
source = "a.csv"
[sites.b]
source = "b.csv"
"""


def test_a_study_leaves_the_number_of_clusters_to_the_method(tmp_path):
    X, _ = blobs(rows=400)
    for name, rows in zip("ab", np.split(X, 2), strict=True):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="u,v", comments="")
    study = parse_study(STUDY, folder=tmp_path)
    model = study.estimator().fit(study.federation())
    assert model.n_clusters_ == 4
    assert set(describe(model, study.federation())["profiles"]) >= {"centers"}
    assert model.node_rows_.min() >= 6
    with pytest.raises(fc.StudyError, match="finds the number of clusters; leave k out"):
        parse_study(STUDY.replace("floor = 6", "k = 3"), folder=tmp_path)
    with pytest.raises(fc.StudyError, match="lacks k"):
        parse_study(STUDY.replace("fcac", "k-means").replace("floor = 6\n", ""), folder=tmp_path)
