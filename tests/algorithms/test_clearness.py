"""How clear clusters of summaries are, compared with those of a cloud without any."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.summary_clustering import clearness, neighbor_graph
from fedclust.algorithms.summary_clustering.clearness import Cloud
from fedclust.algorithms.summary_clustering.outlier_fences import OutlierFences

NOTE = "not much clearer"


def federation(rows, sites=4):
    return fc.Federation.local({f"site-{i}": rows[i::sites] for i in range(sites)})


def normal(count, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(count, columns))


def apart(count, columns, far, seed=0):
    """Two normal clusters, their means so far apart in the first column."""
    rows = normal(count, columns, seed)
    rows[::2, 0] += far
    return np.random.default_rng(seed).permutation(rows)


def best(places, rows):
    return max(level.score for level in neighbor_graph.find_clusters(places, rows, 0).levels)


@pytest.mark.parametrize("columns", [2, 5, 20])
@pytest.mark.parametrize("sites", [1, 4, 16])
def test_a_cloud_is_said_to_be_one(columns, sites):
    model = fc.SummaryClustering().fit(federation(normal(1600, columns), sites))
    assert model.n_clusters_ > 1
    assert 0.4 < model.clearness_ < clearness.UNCLEAR_BELOW
    assert sum(NOTE in note for note in model.notes_) == 1


@pytest.mark.parametrize("columns", [2, 5, 20])
@pytest.mark.parametrize("sites", [1, 4, 16])
def test_two_clusters_are_not(columns, sites):
    model = fc.SummaryClustering().fit(federation(apart(1600, columns, far=6.0), sites))
    assert model.n_clusters_ == 2
    assert model.clearness_ > clearness.UNCLEAR_BELOW
    assert not any(NOTE in note for note in model.notes_)


def test_the_best_score_over_the_mean_of_three_clouds():
    rng = np.random.default_rng(3)
    points, rows = normal(80, 3), rng.integers(5, 30, 80)
    cloud = Cloud.of_summaries(points, rows, sites=4, floor=5)
    rng = np.random.default_rng((0, 5))
    usual = np.mean([best(*cloud.draw_summaries(rng)) for _ in range(3)])
    levels = neighbor_graph.find_clusters(points, rows, 0).levels
    assert clearness.measure_clearness(points, rows, levels, cloud, 0) == pytest.approx(
        best(points, rows) / usual, abs=1e-3
    )


def test_of_many_summaries_a_sample_is_judged():
    points = normal(clearness.MAX_JUDGED + 300, 2)
    points = points[np.lexsort(points.T[::-1])]  # as the coordinator holds them
    rows = np.random.default_rng(1).integers(5, 30, len(points))
    cloud = Cloud.of_summaries(points, rows, sites=10, floor=5)
    rng = np.random.default_rng((0, 5))
    some = np.sort(rng.choice(len(points), clearness.MAX_JUDGED, replace=False))
    sample = best(np.ascontiguousarray(points[some]), rows[some])
    usual = np.mean([best(*cloud.draw_summaries(rng)) for _ in range(3)])
    levels = neighbor_graph.find_clusters(points, rows, 0).levels
    assert clearness.measure_clearness(points, rows, levels, cloud, 0) == pytest.approx(sample / usual, abs=1e-3)


def test_a_cloud_is_spread_as_the_rows_behind_the_summaries():
    places = normal(500, 2) @ np.array([[3.0, 0.0], [2.0, 0.5]])
    rows = np.where(places[:, 0] > 0, 50, 5)  # heavy on one side, which all rows counted alike would not show
    cloud = Cloud.of_summaries(places, rows, sites=4, floor=5)
    expected = np.linalg.eigvalsh(np.cov(places.T, aweights=rows, ddof=0))[::-1]
    assert cloud.spread**2 == pytest.approx(expected)
    drawn = np.random.default_rng(0)
    means, weights = zip(*(cloud.draw_summaries(drawn) for _ in range(40)), strict=True)
    found = np.average(np.concatenate(means) ** 2, axis=0, weights=np.concatenate(weights))
    assert found == pytest.approx(expected, rel=0.25)  # less, for summaries are means


@pytest.mark.parametrize(("count", "sites", "each"), [(1000, 4, 250), (1000, 20, 50), (100_000, 10, 720), (100, 40, 5)])
def test_a_cloud_has_as_many_rows_at_each_site(count, sites, each):
    places = normal(min(count // 5, 600), 2)
    rows = np.full(len(places), count // len(places))
    cloud = Cloud.of_summaries(places, rows, sites=sites, floor=5)
    assert cloud.rows_per_site == each
    points, weights = cloud.draw_summaries(np.random.default_rng(0))
    assert len(points) == len(weights) <= clearness.MAX_JUDGED
    assert weights.min() >= 5


def test_of_many_columns_the_least_are_left_out():
    scales = np.concatenate([np.ones(40), np.full(60, 0.01)])
    cloud = Cloud.of_summaries(normal(400, 100) * scales, np.full(400, 5), sites=4, floor=5)
    assert 32 < len(cloud.spread) <= 40
    assert (cloud.spread**2).sum() == pytest.approx(40, rel=0.1)
    assert len(Cloud.of_summaries(normal(400, 20) * scales[30:50], np.full(400, 5), sites=4, floor=5).spread) == 20


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e150])
def test_a_cloud_of_any_size_can_be_drawn(scale):
    cloud = Cloud.of_summaries(normal(50, 40) * scale, np.full(50, 5), sites=3, floor=5)
    assert np.isfinite(cloud.spread).all()


def test_what_is_judged_is_what_the_coordinator_saw():
    rows = apart(1000, 2, far=6.0)
    rows[::100, 1] = 1e6  # far out: undamped, they would be all there is to see
    model = fc.SummaryClustering().fit(federation(rows))
    seen = OutlierFences(*model.fences_).damp(model.scaled_nodes_)
    found = neighbor_graph.find_clusters(seen, model.node_rows_, 0)
    cloud = Cloud.of_summaries(seen, model.node_rows_, sites=4, floor=5)
    assert model.clearness_ == clearness.measure_clearness(seen, model.node_rows_, found.levels, cloud, 0)
    undamped = Cloud.of_summaries(model.scaled_nodes_, model.node_rows_, sites=4, floor=5)
    assert model.clearness_ != clearness.measure_clearness(seen, model.node_rows_, found.levels, undamped, 0)


@pytest.mark.parametrize("rows", [np.ones((60, 2)), normal(12, 2), apart(60, 2, far=9.0)])
def test_where_nothing_is_parted_or_little_is_known_nothing_is_said(rows):
    model = fc.SummaryClustering().fit(federation(rows, 2))
    assert model.clearness_ is None
    assert not any(NOTE in note for note in model.notes_)


def test_it_does_not_depend_on_the_order_of_sites_and_is_kept(tmp_path):
    rows = apart(600, 3, far=4.0)
    parts = {f"site-{i}": rows[i::3] for i in range(3)}
    model = fc.SummaryClustering().fit(fc.Federation.local(parts))
    other = fc.SummaryClustering().fit(
        fc.Federation.local({f"z{9 - i}": part for i, part in enumerate(parts.values())})
    )
    assert model.clearness_ == other.clearness_
    model.save(tmp_path / "model.json")
    assert fc.load(tmp_path / "model.json").clearness_ == model.clearness_


def test_a_model_saved_without_it_can_be_updated(tmp_path):
    path = tmp_path / "model.json"
    fc.SummaryClustering().fit(federation(apart(600, 3, far=6.0))).save(path)
    document = json.loads(path.read_text())
    assert document["fitted"].pop("clearness_") is not None
    path.write_text(json.dumps(document))
    old = fc.load(path)
    assert old.clearness_ is None
    assert old.partial_fit(federation(apart(600, 3, far=6.0, seed=1))).clearness_ > clearness.UNCLEAR_BELOW


def test_a_later_round_is_judged_again():
    model = fc.SummaryClustering().fit(federation(normal(1000, 2)))
    before = model.clearness_
    model.partial_fit(federation(normal(1000, 2, seed=1) + 30))
    assert before < clearness.UNCLEAR_BELOW < model.clearness_
    assert not any(NOTE in note for note in model.notes_)
