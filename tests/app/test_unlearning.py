"""Forgetting rows and sites: bit for bit by replay, nearly by the quick way, and what the certificate says."""

import json

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import fedclust as fc
from fedclust.app.unlearning import model_fingerprint
from fedclust.site.policy import Policy


def rows(seed=0, count=180, width=3):
    rng = np.random.default_rng(seed)
    places = np.array(
        [[0] * width, [9, 0] * (width // 2) + [9] * (width % 2), [0, 9] * (width // 2) + [9] * (width % 2)]
    )
    return (rng.normal(size=(count, width)) + np.repeat(places, count // 3, axis=0))[rng.permutation(count)]


def parts(seed=0, count=180):
    X = rows(seed, count)
    return {"a": X[: count // 6], "b": X[count // 6 : count // 2], "c": X[count // 2 :]}


def same(a, b):
    return (
        np.array_equal(a.cluster_centers_, b.cluster_centers_)
        and np.array_equal(a.cluster_sizes_, b.cluster_sizes_)
        and np.array_equal(a.initial_centers_, b.initial_centers_)
        and (a.final_objective, a.history_) == (b.final_objective, b.history_)
    )


KINDS = [
    fc.KMeans(3),
    fc.KMeans(3, init="box", scale="standardise"),
    fc.FuzzyCMeans(3),
    fc.FuzzyCMeans(4, m=1.5, scale="minmax", bounds=(-20, 20), init="box"),
]
GONE = [3, 11, 28]


@pytest.mark.parametrize("model", KINDS)
def test_a_replay_is_the_model_trained_without_the_rows_bit_for_bit(model):
    held = parts()
    fitted = type(model)(**model.get_params()).fit(fed := fc.Federation.local(held))
    found, certificate = fc.unlearn(fitted, fed, site="b", rows=GONE)
    less = {**held, "b": np.delete(held["b"], GONE, axis=0)}
    trained = type(model)(**{**model.get_params(), "init": fitted.initial_centers_}).fit(fc.Federation.local(less))
    assert same(found, trained)
    assert certificate.exact
    assert certificate.removed == "3 rows of site b"
    assert found.get_params()["init"] is model.init or found.get_params()["init"] == model.init


@pytest.mark.parametrize("model", [*KINDS, fc.GaussianMixture(3, family="EII")])
def test_a_replay_is_the_model_trained_without_the_site_bit_for_bit(model):
    held = parts()
    fitted = type(model)(**model.get_params()).fit(fed := fc.Federation.local(held))
    found, certificate = fc.unlearn(fitted, fed, site="a")
    del held["a"]
    trained = type(model)(**{**model.get_params(), "init": fitted.initial_centers_}).fit(fc.Federation.local(held))
    assert same(found, trained)
    assert (certificate.removed, certificate.sites) == ("site a", 2)


@pytest.mark.parametrize("model", [fc.KMeans(3), fc.KFed(3), fc.MUFC(3), fc.AveragedFuzzyCMeans(3)])
def test_a_start_drawn_anew_leaves_no_trace_at_all(model):
    held = parts()
    fitted = type(model)(**model.get_params()).fit(fed := fc.Federation.local(held))
    found, certificate = fc.unlearn(fitted, fed, site="c", rows=[0], how="redraw")
    less = {**held, "c": held["c"][1:]}
    assert same(found, type(model)(**model.get_params()).fit(fc.Federation.local(less)))
    assert certificate.start == "independent of the removed rows"


@pytest.mark.parametrize("model", [fc.KMeans(3), fc.KMeans(3, scale="standardise"), *KINDS[2:]])
def test_the_quick_way_ends_where_the_replay_does_within_tolerance(model):
    far = {"tol": 1e-9, "max_iter": 500, "init": "careful"}  # so that the way from there is longer than the quick one
    fitted = type(model)(**model.get_params() | far).fit(fed := fc.Federation.local(parts()))
    found, certificate = fc.unlearn(fitted, fed, site="b", rows=GONE, how="quick", check=True)
    assert not certificate.exact
    assert certificate.center_distance < 1e-6
    assert certificate.matches_replay
    assert found.n_iter_ <= fitted.n_iter_
    assert np.array_equal(found.initial_centers_, fitted.initial_centers_)


def test_a_quick_result_in_another_optimum_is_said_to_differ():
    # Four groups in a square and two centres: rows decide which way the square is cut.
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.2, 0.0], [1.2, 1.0]])
    held = {"a": np.repeat(X, 4, axis=0), "b": np.repeat(X[[0, 1]], 40, axis=0)}
    model = fc.KMeans(2, init=[[0.6, 0.0], [0.6, 1.0]], tol=None, max_iter=1).fit(fed := fc.Federation.local(held))
    model.cluster_centers_ = np.array([[0.0, 0.5], [1.2, 0.5]])  # as if it had ended in the other optimum
    model.scaled_centers_ = model.cluster_centers_
    _, certificate = fc.unlearn(model, fed, site="b", rows=[0], how="quick", check=True)
    assert certificate.matches_replay is False
    assert certificate.same_partition
    assert certificate.center_distance > 0.5


def test_whether_the_other_rows_stay_together_is_said():
    X = np.array([[0.0], [1.0], [4.0], [6.0], [10.0], [10.0]])
    model = fc.KMeans(2, init=[[0.0], [10.0]]).fit(fed := fc.Federation.local({"a": X}))
    assert model.labels_.tolist() == [0, 0, 0, 1, 1, 1]
    _, certificate = fc.unlearn(model, fed, site="a", rows=[4, 5])
    assert not certificate.same_partition  # without the rows at 10, the one at 6 pulls 4 over
    _, certificate = fc.unlearn(model, fed, site="a", rows=[0])
    assert certificate.same_partition


def test_a_site_that_forgot_a_row_that_was_no_pick_keeps_its_picks():
    held = parts()
    fitted = fc.MUFC(3, bounds=(-20, 20)).fit(fed := fc.Federation.local(held))
    picks = fed.local_sites["b"].memory[fed.run_id]["seeds"]
    is_pick = np.array([(row == picks).all(axis=1).any() for row in held["b"]])
    other, pick = int(np.flatnonzero(~is_pick)[0]), int(np.flatnonzero(is_pick)[0])
    _, kept = fc.unlearn(fitted, fed, site="b", rows=[other], how="quick")
    _, anew = fc.unlearn(fitted, fed, site="b", rows=[pick], how="quick")
    assert kept.recomputed.startswith("0 of 3 sites selected their rows again")
    assert anew.recomputed.startswith("1 of 3 sites selected their rows again")


def test_a_forgotten_row_is_not_counted_any_more():
    held = parts()
    fitted = fc.MUFC(3, bounds=(-20, 20)).fit(fed := fc.Federation.local(held))
    found, _ = fc.unlearn(fitted, fed, site="b", rows=GONE, how="quick")
    assert fitted.cluster_sizes_.sum() == 180
    assert found.cluster_sizes_.sum() == 177


def test_without_a_site_the_quick_way_of_mufc_is_exact():
    held = parts()
    fitted = fc.MUFC(3, bounds=(-20, 20)).fit(fed := fc.Federation.local(held))
    quick, _ = fc.unlearn(fitted, fed, site="a", how="quick")
    del held["a"]
    assert same(quick, fc.MUFC(3, bounds=(-20, 20)).fit(fc.Federation.local(held)))


def test_rows_in_a_file_are_left_out_as_those_in_memory(tmp_path):
    held = parts()
    np.savetxt(tmp_path / "b.csv", held["b"], delimiter=",", header="x0,x1,x2", comments="", fmt="%.17g")
    filed = fc.Federation.local({**held, "b": tmp_path / "b.csv"})
    fitted = fc.KMeans(3, init="box").fit(filed)
    found, _ = fc.unlearn(fitted, filed, site="b", rows=GONE)
    assert same(
        found,
        fc.unlearn(fc.KMeans(3, init="box").fit(held_ := fc.Federation.local(held)), held_, site="b", rows=GONE)[0],
    )


def test_sites_that_deleted_rows_themselves_need_name_none():
    held = parts()
    fitted = fc.FuzzyCMeans(3).fit(fc.Federation.local(held))
    less = fc.Federation.local({**held, "b": held["b"][5:]})
    found, certificate = fc.unlearn(fitted, less)
    assert same(found, fc.unlearn(fitted, fc.Federation.local(held), site="b", rows=range(5))[0])
    assert certificate.removed == "the rows that the sites deleted"


@pytest.mark.parametrize("aggregation", ["secure", "blind"])
def test_what_sites_deleted_is_not_forgotten_under_masks(aggregation):
    held = {**parts(), "d": parts()["a"] + 1.0}
    fitted = fc.KMeans(3).fit(fc.Federation.local(held, aggregation=aggregation))
    less = fc.Federation.local({**held, "b": held["b"][1:]}, aggregation=aggregation)
    with pytest.raises(fc.StudyError, match="would reveal the removed rows, despite the masks"):
        fc.unlearn(fitted, less)


def test_sites_with_rules_on_cohorts_remember_whom_they_answered_with():
    rng = np.random.default_rng(0)
    held = {f"s{i}": rng.normal(size=(60, 2)) + 9 * (np.arange(60) % 2)[:, None] for i in range(8)}
    fed = fc.Federation.local(held, aggregation="secure", policy="standard")
    fitted = fc.KMeans(2, init=[[0.0, 0.0], [9.0, 9.0]]).fit(fed)
    with pytest.raises(fc.QuorumLost, match="another set of sites"):
        fc.unlearn(fitted, fed, site=["s0", "s1", "s2"])


def test_a_model_of_several_rounds_is_not_unlearnt():
    held = parts()
    model = fc.SummaryClustering().fit(fc.Federation.local(held))
    later = fc.Federation.local({p: rows + 40 for p, rows in held.items()})
    model.partial_fit(later)
    with pytest.raises(fc.StudyError, match="several batches"):
        fc.unlearn(model, later, site="b", rows=[0])


def test_a_model_of_summaries_forgets_by_being_fitted_again():
    held = parts()
    fed = fc.Federation.local(held)
    found, certificate = fc.unlearn(fc.SummaryClustering().fit(fed), fed, site="b", rows=GONE)
    kept = fc.SummaryClustering().fit(fc.Federation.local({**held, "b": np.delete(held["b"], GONE, axis=0)}))
    assert certificate.exact
    assert (found.nodes_ == kept.nodes_).all()
    assert (found.node_labels_ == kept.node_labels_).all()


def test_a_certificate_names_both_models_and_shows_no_sum_and_no_row(tmp_path):
    held = parts()
    fitted = fc.KMeans(3).fit(fed := fc.Federation.local(held))
    found, certificate = fc.unlearn(fitted, fed, site="b", rows=GONE, how="quick", check=True)
    assert certificate.fits(fitted, found)
    assert not certificate.fits(found, fitted)
    assert certificate.before == model_fingerprint(fc.load(fitted.save(tmp_path / "model.json")))
    document = json.loads(certificate.save(tmp_path / "certificate.json").read_text())
    kept = {"format", "version", "method", "removed", "how", "sites", "before", "after", "recomputed", "exact", "start"}
    assert set(document) == kept | {"same_partition", "matches_replay", "center_distance"}
    assert not any(isinstance(value, (list, dict)) for value in document.values())


def test_where_the_start_came_from_is_said():
    fed = fc.Federation.local(parts())
    careful = fc.unlearn(fc.KMeans(3).fit(fed), fed, site="a")[1]
    public = fc.unlearn(fc.KMeans(3, init="box", bounds=(-20, 20)).fit(fed), fed, site="a")[1]
    assert careful.start.startswith("recorded, and drawn before the removal")
    assert public.start == "independent of the removed rows"


def test_the_model_and_the_federation_are_left_as_they_were():
    fitted = fc.KMeans(3).fit(fed := fc.Federation.local(parts()))
    before = model_fingerprint(fitted)
    fc.unlearn(fitted, fed, site="b", rows=GONE)
    assert model_fingerprint(fitted) == before
    assert fed.site_data["b"].survey.rows == 60


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"site": "b", "how": "soon"}, "'how' is 'soon'"),
        ({"site": "x"}, "no site 'x'"),
        ({"rows": [1]}, "`rows` must belong to a single site"),
        ({"site": "b", "rows": range(60)}, "all rows of b"),
        ({"site": ["a", "b", "c"]}, "no rows would be left"),
        ({"site": []}, "`site` is empty"),
        ({"site": "b", "rows": [1.5]}, "`rows` must be row numbers"),
        ({"site": "b", "rows": ["1"]}, "`rows` must be row numbers"),
        ({"site": "b", "rows": [[1], [2, 3]]}, "`rows` must be row numbers"),
        ({"site": "b", "rows": [True, False]}, "a mask of 2 values, but b has 60 rows"),
        ({"site": "b", "rows": [True, 3]}, "`rows` must be row numbers"),
        ({"site": "b", "rows": True}, "a mask of 1 value, but b has 60 rows"),
    ],
)
def test_what_cannot_be_forgotten_is_said(options, sentence):
    fed = fc.Federation.local(parts())
    with pytest.raises(fc.StudyError, match=sentence):
        fc.unlearn(fc.KMeans(3).fit(fed), fed, **options)


def test_a_mask_names_the_rows_where_it_is_true():
    held = parts()
    fitted = fc.KMeans(3).fit(fed := fc.Federation.local(held))
    mask = np.zeros(len(held["b"]), bool)
    mask[GONE] = True
    by_mask, certificate = fc.unlearn(fitted, fed, site="b", rows=mask)
    by_list, _ = fc.unlearn(fitted, fed, site="b", rows=mask.tolist())
    by_place, _ = fc.unlearn(fitted, fed, site="b", rows=GONE)
    assert same(by_mask, by_place)
    assert same(by_list, by_place)
    assert by_mask.cluster_sizes_.sum() == 177
    assert certificate.removed == "3 rows of site b"
    with pytest.raises(fc.DataError, match="give row numbers in this range"):
        fc.unlearn(fitted, fed, site="b", rows=np.zeros_like(mask))


@pytest.mark.parametrize("given", [4, [4, 4], np.array([[4]], np.uint8), np.where(np.arange(60) == 4)])
def test_the_certificate_counts_rows_that_were_forgotten_each_once(given):
    fitted = fc.KMeans(3).fit(fed := fc.Federation.local(parts()))
    found, certificate = fc.unlearn(fitted, fed, site="b", rows=given)
    assert certificate.removed == "1 row of site b"
    assert found.cluster_sizes_.sum() == 179


def test_a_quorum_of_all_sites_goes_with_those_that_are_left():
    fitted = fc.KMeans(3, quorum=3).fit(fed := fc.Federation.local(parts()))
    found, certificate = fc.unlearn(fitted, fed, site="a")
    assert (certificate.sites, found.quorum) == (2, 3)


def test_a_model_that_was_not_fitted_has_nothing_to_forget():
    with pytest.raises(NotFittedError):
        fc.unlearn(fc.KMeans(3), fc.Federation.local(parts()), site="a")


def test_a_row_that_is_not_there_is_said():
    fed = fc.Federation.local(parts())
    with pytest.raises(fc.DataError, match="b has rows 0 to 59"):
        fc.unlearn(fc.KMeans(3).fit(fed), fed, site="b", rows=[60])


def test_masked_sums_are_not_opened_by_forgetting():
    held = {f"p{i}": part for i, part in enumerate(np.array_split(rows(), 6))}
    fed = fc.Federation.local(held, aggregation="secure")
    model = fc.KMeans(3).fit(fed)
    with pytest.raises(fc.StudyError, match="would reveal the removed rows, despite the masks"):
        fc.unlearn(model, fed, site="p0")
    with pytest.raises(fc.StudyError, match="would reveal the removed rows, despite the masks"):
        fc.unlearn(model, fed, site=["p0", "p0", "p0"])
    found, _ = fc.unlearn(model, fed, site=["p0", "p1", "p2"])
    assert found.cluster_sizes_.sum() == 90


def test_a_model_of_batches_and_a_method_without_a_quick_way_are_refused():
    fed = fc.Federation.local(parts())
    with pytest.raises(fc.StudyError, match="several batches"):
        fc.unlearn(fc.KMeans(3).partial_fit(fed).partial_fit(fed), fed, site="a")
    with pytest.raises(fc.StudyError, match="'quick' is not available for KFed"):
        fc.unlearn(fc.KFed(3).fit(fed), fed, site="a", how="quick")


def test_a_column_split_is_refused():
    X = rows()
    fed = fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns")
    with pytest.raises(fc.StudyError, match="from a model of a column split"):
        fc.unlearn(fc.KMeans(3).fit(fed), fed, rows=[1])


@pytest.mark.parametrize(("policy", "said"), [(Policy("open"), False), (Policy("own", min_cell=5), None)])
def test_a_site_that_may_not_count_so_few_rows_leaves_the_comparison_open(policy, said):
    # Without the rows at 14 the one at 5.4 is nearer to the upper centre: one row that changes its cluster.
    here = np.array([[0.0]] * 20 + [[10.0]] * 20 + [[5.4]])
    fed = fc.Federation.local({"here": here, "far": np.full((20, 1), 14.0)}, policy=policy)
    model = fc.KMeans(2, init=[[0.0], [10.0]], bounds=(0, 16)).fit(fed)
    _, certificate = fc.unlearn(model, fed, site="far")
    assert certificate.same_partition is said
    assert certificate.exact
