"""Private c-means: what it finds, what it pays, what it refuses, and that it asks nothing it has not paid for."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.private_kmeans import noisy_cells, private_fit
from fedclust.app.analysis import describe, epsilon_curve
from fedclust.app.study import parse_study
from fedclust.cli.main import main
from fedclust.core.effects import HANDLERS
from fedclust.privacy.accountant import rho_from_epsilon
from fedclust.site.policy import PROFILES

pytest.importorskip("opendp")
RNG = np.random.default_rng(0)
CENTERS = np.array([[-4.0, 0.0, 2.0, 0.0], [4.0, 1.0, 0.0, 3.0], [0.0, 6.0, -3.0, 0.0]])
Y = RNG.integers(3, size=3000)
X = CENTERS[Y] + RNG.normal(size=(3000, 4))
BOUNDS = (-12, 12)


def near(model):
    """How far the farthest true centre is from the nearest found one."""
    gaps = np.linalg.norm(CENTERS[:, None] - model.cluster_centers_, axis=2)
    return gaps.min(axis=1).max()


def over(parts, **options):
    return fc.Federation.local({f"s{i}": part for i, part in enumerate(np.array_split(X, parts))}, **options)


@pytest.mark.parametrize("mode", ["plain", "secure", "blind"])
def test_clusters_are_found_under_noise_in_every_mode(mode):
    model = fc.PrivateKMeans(3, epsilon=4.0, bounds=BOUNDS).fit(over(4, aggregation=mode))
    assert near(model) < 0.5
    assert model.honest_ == (1 if mode == "plain" else 3)
    assert model.n_rows_ == pytest.approx(3000, abs=300)


def test_prices_add_up_to_the_epsilon_that_was_set():
    model = fc.PrivateKMeans(3, epsilon=1.0, bounds=BOUNDS).fit(X)
    assert math.fsum(model.prices_) <= rho_from_epsilon(1.0, 1e-6)
    assert model.epsilon_ == pytest.approx(1.0, rel=1e-6)
    assert 0.8 < model.reported_epsilon_ < 1.0
    assert "at most 73%" in " ".join(model.notes_)


def test_every_question_is_under_noise_or_about_keys():
    fed = over(4, aggregation="secure")
    describe(fc.PrivateKMeans(3, bounds=BOUNDS).fit(fed), fed)
    asked = {entry.handler for desk in fed.local_sites.values() for entry in desk.gate.ledger.entries}
    kinds = {d.kind for name in asked for d in HANDLERS[name].release.schema().values()}
    assert "private_fit.count_cells" in asked
    assert kinds <= {"noisy", "keys"}


def test_a_site_with_a_budget_takes_part_until_it_is_spent():
    rules = replace(PROFILES["standard"], epsilon=1.5)
    fed = over(3, aggregation="secure", policy=rules)
    fc.PrivateKMeans(3, epsilon=1.0, bounds=BOUNDS).fit(fed)
    with pytest.raises(fc.QuorumLost, match="privacy budget"):
        fc.PrivateKMeans(3, epsilon=1.1, bounds=BOUNDS).fit(fed)  # another question: not the first answered again
    with pytest.raises(fc.QuorumLost, match="answers only with noise"):
        fc.KMeans(3, bounds=BOUNDS, init="box").fit(over(3, aggregation="secure", policy=rules))


def test_the_number_of_clusters_is_chosen_from_the_same_sums():
    models = [fc.PrivateKMeans((1, 6), epsilon=4.0, bounds=BOUNDS).fit(X) for _ in range(5)]
    assert sorted(model.n_clusters_ for model in models)[2] == 3  # noise is not to be foretold: one in fifty has 4
    assert all(math.fsum(model.prices_) <= rho_from_epsilon(4.0, 1e-6) for model in models)


def test_fuzzy_centres_lie_where_fuzzy_c_means_puts_them():
    exact = fc.FuzzyCMeans(3, init=CENTERS).fit(X)
    model = fc.PrivateFuzzyCMeans(3, epsilon=8.0, bounds=BOUNDS).fit(X)
    gaps = np.linalg.norm(exact.cluster_centers_[:, None] - model.cluster_centers_, axis=2)
    assert gaps.min(axis=1).max() < 0.4
    assert model.memberships(X[:5]).sum(axis=1) == pytest.approx(1.0)


def test_lloyd_is_there_by_name_and_spends_the_same():
    model = fc.PrivateKMeans(3, epsilon=2.0, bounds=BOUNDS, variant="lloyd", rounds=3).fit(X)
    assert len(model.prices_) == model.n_iter_ == 3
    assert math.fsum(model.prices_) <= rho_from_epsilon(2.0, 1e-6)


def test_a_saved_model_is_the_model(tmp_path):
    model = fc.PrivateKMeans(3, bounds=BOUNDS, scale="minmax").fit(X)
    again = fc.load(model.save(tmp_path / "model.json"))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.prices_ == model.prices_


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bounds": None}, "public bounds"),
        ({"scale": "standardise"}, "would spend privacy budget"),
        ({"epsilon": 0}, "epsilon is 0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": 0.5}, "delta is 0.5; it must be a number above 0, at most 0.01 and far below 1 / "),
        ({"delta": 0.0101}, "delta is 0.0101"),
        ({"variant": "exact"}, "'variant' is 'exact'"),
        ({"n_clusters": "many"}, "n_clusters is 'many'"),
        ({"n_clusters": (2, 5), "variant": "lloyd"}, "cannot choose the number of clusters"),
        ({"rounds": 3}, "it works only with variant='lloyd'"),
    ],
)
def test_what_cannot_be_kept_private_is_refused(given, told):
    with pytest.raises(fc.StudyError, match=told):
        fc.PrivateKMeans(3, bounds=BOUNDS).set_params(**given).fit(X)


def test_a_column_split_is_refused():
    fed = fc.Federation.local({"a": X[:, :2], "b": X[:, 2:]}, split="columns")
    with pytest.raises(fc.StudyError, match="does not support column splits"):
        fc.PrivateKMeans(3, bounds=BOUNDS).fit(fed)


def test_a_large_epsilon_comes_with_a_warning():
    notes = fc.PrivateKMeans(3, epsilon=50.0, bounds=BOUNDS).fit(X).notes_
    assert "no protection" in notes[-1]


def test_a_delta_that_is_not_below_one_in_so_many_rows_comes_with_a_warning():
    notes = fc.PrivateKMeans(3, epsilon=2.0, delta=0.01, bounds=BOUNDS).fit(X).notes_
    assert notes[-1].startswith("delta = 0.01 is not below 1 / rows")
    notes = fc.PrivateKMeans(3, epsilon=2.0, delta=1e-4, bounds=BOUNDS).fit(X).notes_
    assert not any("not below 1 / rows" in note for note in notes)


@pytest.mark.parametrize("variant", ["projected", "lloyd"])
def test_rows_that_are_few_beside_the_noise_in_their_number_are_told(variant):
    told = "The number of rows is small compared with the noise added to it"
    few = fc.PrivateKMeans(3, epsilon=0.5, bounds=BOUNDS, variant=variant).fit(X[:60])
    assert any(note.startswith(told) for note in few.notes_)
    many = fc.PrivateKMeans(3, epsilon=2.0, bounds=BOUNDS, variant=variant).fit(X)
    assert not any(note.startswith(told) for note in many.notes_)


def test_sure_counts_show_clusters_of_unequal_sizes_at_their_places():
    grid = noisy_cells.Lattice(np.array([1.0]), np.array([40]))
    places = grid.cell_centers[:, 0]
    counts = sum(n * np.exp(-((places - at) ** 2) / (2 * 0.05**2)) for n, at in ((80, -0.5), (5, 0.1), (15, 0.6)))
    found = noisy_cells.find_clusters(counts, grid, (3,), 0.05, noise=0.01, rng=np.random.default_rng(0))
    assert sorted(found.places[:, 0]) == pytest.approx([-0.5, 0.1, 0.6], abs=0.02)
    assert sorted(found.mass / found.mass.sum()) == pytest.approx([0.05, 0.15, 0.8], abs=0.01)


def test_the_radius_is_the_least_that_more_than_a_few_rows_reach():
    counts = np.zeros(private_fit.HALF_OCTAVES)
    counts[[0, 4]] = [1, 999]
    assert private_fit._radius(counts, 8.0, noise=0.0) == 2.0  # four half octaves below
    assert private_fit._radius(counts, 8.0, noise=600.0) == 8.0  # noise that large hides all


def test_noisy_sums_move_a_centre_as_worked_out_by_hand():
    # Forty rows count a quarter each; their offsets add up to 4 reaches of 2 along the first axis: 8 / 40 each.
    sums = np.array([[4.0, 0.0, 10.0], [0.0, 0.0, 0.1]])
    moved, mass = private_fit.shift_centers(sums, np.array([[1.0, 1.0], [5.0, 5.0]]), 2.0, noise=1.0)
    assert moved == pytest.approx(np.array([[1.2, 1.0], [5.0, 5.0]]))
    assert mass == pytest.approx([40.0, 0.4])


STUDY = """
name = "quiet"
columns = ["a", "b", "c", "d"]
bounds = [-12, 12]
[cluster]
method = "k-means"
k = {k}
{more}
[privacy]
{privacy}
[sites.north]
source = "north.csv"
"""


def study(k="3", more="", privacy="epsilon = 2.0", folder=None):
    return parse_study(STUDY.format(k=k, more=more, privacy=privacy), folder=folder)


def test_a_study_with_an_epsilon_asks_for_the_private_form(tmp_path):
    estimator = study('"2..5"', folder=tmp_path).make_estimator(("a", "b", "c", "d"))
    assert type(estimator) is fc.PrivateKMeans
    assert (estimator.n_clusters, estimator.epsilon, estimator.delta) == ((2, 5), 2.0, 1e-6)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"more": 'init = "box"'}, "init in .* cannot be used with epsilon"),
        ({"privacy": "delta = 1e-5"}, "no epsilon"),
        ({"privacy": "epsilon = 2.0\ndelta = 0.5"}, r"delta in \[privacy\] is 0.5; it must be .* at most 0.01"),
        ({"k": '"auto"'}, "give a range"),
        ({"k": '"2..4"', "more": 'rule = "elbow"'}, "rule in .* cannot be used with epsilon"),
    ],
)
def test_what_does_not_go_with_an_epsilon_is_refused(given, told, tmp_path):
    with pytest.raises(fc.StudyError, match=told):
        study(folder=tmp_path, **given)


def test_a_site_sees_what_each_epsilon_costs_and_nothing_is_spent(tmp_path, capsys):
    np.savetxt(tmp_path / "north.csv", X[:1200], delimiter=",", header="a,b,c,d", comments="")
    (tmp_path / "study.toml").write_text(STUDY.format(k=3, more="", privacy="epsilon = 2.0"))
    asked = ["site", "utility", str(tmp_path / "study.toml"), "--data", str(tmp_path / "north.csv"), "--tries", "1"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["curve"]
    assert [point["epsilon"] for point in found] == list(epsilon_curve.EPSILONS)
    assert found[-1]["mean"] > 0.9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["north.csv", "study.toml"]


def test_a_run_under_privacy_is_reported_with_what_it_promises(tmp_path, capsys):
    np.savetxt(tmp_path / "north.csv", X, delimiter=",", header="a,b,c,d", comments="")
    (tmp_path / "study.toml").write_text(STUDY.format(k=3, more="", privacy="epsilon = 60.0"))
    assert main(["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Privacy and its cost" in page
    assert "no protection" in page
    assert "gives the same result, bit for bit" not in page
