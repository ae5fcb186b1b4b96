"""Methods that find the number of clusters: their checks, rounds that survive the process, and studies."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedclust as fc
from fedclust.app.analysis import describe
from fedclust.app.study import parse_study

KINDS = [fc.FCAC, fc.SummaryClustering]


@parametrize_with_checks([fc.FCAC(), fc.SummaryClustering(), fc.SummaryClustering(scale="standardise")])
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("array API dispatch is not offered")
    if check.func.__name__ == "check_clustering" and isinstance(estimator, fc.FCAC):
        pytest.skip("of fifty rows the nets make mostly single nodes")
    check(estimator)


def blobs(seed=0, rows=400, centers=((0, 0), (9, 0), (0, 9), (9, 9))):
    rng = np.random.default_rng(seed)
    centers = np.array(centers, float)
    y = rng.integers(len(centers), size=rows)
    return centers[y] + rng.normal(size=(rows, centers.shape[1])), y


def dealt(X, parties=4):
    return {f"p{i}": part for i, part in enumerate(np.array_split(X, parties))}


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_survive_the_process_in_model_and_run_folders(kind, tmp_path):
    batches = [dealt(blobs(seed)[0]) for seed in range(3)]
    here = kind()
    for batch in batches:
        here.partial_fit(fc.Federation.local(batch))
    path = tmp_path / "model.json"
    for number, batch in enumerate(batches):
        with fc.Federation.local(batch, run=tmp_path / f"round-{number}") as fed:
            if number:
                model = fc.load(path).partial_fit(fed, after=tmp_path / f"round-{number - 1}")
            else:
                model = kind().fit(fed)
            model.save(path)
    assert np.array_equal(fc.load(path).nodes_, here.nodes_)
    assert np.array_equal(fc.load(path).node_labels_, here.node_labels_)
    assert not any("started from the beginning" in note for note in model.notes_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_that_skips_a_round_keeps_its_memory_across_processes(kind, tmp_path):
    X, _ = blobs(rows=226)
    rounds = [{"a": X[:100], "b": X[100:103]}, {"a": X[103:203]}, {"a": X[203:223], "b": X[223:]}]
    here = kind()
    for number, batch in enumerate(rounds):
        here.partial_fit(fc.Federation.local(batch))
        with fc.Federation.local(batch, run=tmp_path / f"round-{number}") as fed:
            model = fc.load(tmp_path / "model.json") if number else kind()
            model.partial_fit(fed, after=tmp_path / f"round-{number - 1}") if number else model.fit(fed)
            model.save(tmp_path / "model.json")
        assert not any("started from the beginning" in note for note in model.notes_)
    assert np.array_equal(model.nodes_, here.nodes_)
    assert model.sites_ == ["a", "b"]
    if kind is fc.SummaryClustering:
        assert model.node_rows_.sum() == 226


def test_each_site_whose_memory_is_not_available_is_named(tmp_path):
    X, _ = blobs(rows=300)
    model = fc.SummaryClustering().fit(fc.Federation.local({"a": X[:100], "b": X[100:200]}))
    path = model.save(tmp_path / "model.json")
    with fc.Federation.local({"a": X[200:250]}, run=tmp_path / "round-2") as fed:
        loaded = fc.load(path).partial_fit(fed)
    assert any("not available: a." in note for note in loaded.notes_)
    path = loaded.save(path)
    later = fc.Federation.local({"a": X[250:270], "b": X[270:290], "new": X[290:]})
    last = fc.load(path).partial_fit(later, after=tmp_path / "round-2")
    assert any("not available: b." in note for note in last.notes_)
    assert not any(
        "started from the beginning" in n for n in model.partial_fit(fc.Federation.local({"new": X[290:]})).notes_
    )


class Killed(BaseException):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_killed_at_any_answer_ends_with_the_same_bits(kind, tmp_path):
    first, second = dealt(blobs(0)[0], 3), dealt(blobs(1)[0], 3)
    with fc.Federation.local(first, run=tmp_path / "first") as fed:
        kind().fit(fed).save(tmp_path / "model.json")
    expected = fc.load(tmp_path / "model.json")
    expected.partial_fit(fc.Federation.local(second), after=tmp_path / "first")
    for stop in range(1, 12):
        folder = tmp_path / f"killed-{stop}"
        answers = 0

        def once(model, folder=folder, stop=stop):
            with fc.Federation.local(second, run=folder) as fed:
                if stop:
                    for desk in fed.local_sites.values():
                        desk.answer = counting(desk.answer, stop)
                return model.partial_fit(fed, after=tmp_path / "first")

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
            done = once(fc.load(tmp_path / "model.json"))
        except Killed:
            done = once(fc.load(tmp_path / "model.json"), stop=0)
        assert np.array_equal(done.nodes_, expected.nodes_)
        assert np.array_equal(done.node_labels_, expected.node_labels_)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_without_the_sites_memory_says_so(kind, tmp_path):
    X, _ = blobs()
    path = kind().fit(X).save(tmp_path / "model.json")
    again = fc.load(path).partial_fit(X)
    assert any("started from the beginning" in note for note in again.notes_)
    with pytest.raises(fc.DataError, match="no memory of any site"):
        fc.load(path).partial_fit(X, after=tmp_path)


@pytest.mark.parametrize("kind", KINDS)
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
def test_degenerate_rows_have_defined_results(kind, X):
    for fed in (X, fc.Federation.local({"a": X, "one": X[:1]})):
        model = kind().fit(fed)
        for value in (model.nodes_, model.cluster_centers_, model.objective_, model.cluster_sizes_):
            assert np.isfinite(value).all()
        assert model.n_clusters_ >= 1
        labels = model.predict(X)
        assert ((labels >= 0) & (labels < model.n_clusters_)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_a_later_round_must_be_the_models(kind):
    model = kind().fit(blobs()[0])
    with pytest.raises(fc.DataError, match="the columns differ from those of the model"):
        model.partial_fit(fc.Federation.local({"a": np.zeros((9, 3))}))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_checked(kind):
    X, _ = blobs()
    for wrong, words in (
        ({"max_nodes": 3}, "max_nodes is 3"),
        ({"scale": "log"}, "scale is 'log'"),
        ({"scale": "minmax"}, "needs public bounds"),
        ({"missing": "partial"}, f"{kind.__name__} needs rows without missing values"),
    ):
        with pytest.raises(fc.StudyError, match=words):
            kind(**wrong).fit(X)
    with pytest.raises(fc.StudyError, match="works on row splits only"):
        kind().fit(fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns"))


def test_the_floor_is_checked():
    with pytest.raises(fc.StudyError, match="'floor' is 1"):
        fc.SummaryClustering(floor=1).fit(blobs()[0])


STUDY = """name = "open"
[cluster]
method = "summary-clustering"
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
    model = study.make_estimator().fit(study.open_federation())
    assert model.n_clusters_ == 4
    assert set(describe(model, study.open_federation())["profiles"]) >= {"centers"}
    assert model.node_rows_.min() >= 6
    with pytest.raises(fc.StudyError, match="finds the number of clusters; leave k out"):
        parse_study(STUDY.replace("floor = 6", "k = 3"), folder=tmp_path)


def test_fcac_in_a_study_is_paper_3s(tmp_path):
    X, _ = blobs(rows=400)
    for name, rows in zip("ab", np.split(X, 2), strict=True):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="u,v", comments="")
    text = STUDY.replace("summary-clustering", "fcac").replace("floor = 6", "max_nodes = 99")
    study = parse_study(text, folder=tmp_path)
    model = study.make_estimator().fit(study.open_federation())
    expected = fc.FCAC(max_nodes=99).fit(fc.Federation.local(dict(zip("ab", np.split(X, 2), strict=True))))
    assert isinstance(model, fc.FCAC)
    assert np.array_equal(model.node_labels_, expected.node_labels_)
    with pytest.raises(fc.StudyError, match="floor"):
        parse_study(STUDY.replace("summary-clustering", "fcac"), folder=tmp_path)
