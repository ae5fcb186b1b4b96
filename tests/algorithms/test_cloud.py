"""How clear FCAC's clusters are, beside those of a cloud without any."""

from __future__ import annotations

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms import cloud, fcac_graph

NOTE = "hardly clearer"


def federation(rows, sites=4):
    return fc.Federation.local({f"site-{i}": rows[i::sites] for i in range(sites)})


def normal(count, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(count, columns))


def apart(count, columns, far, seed=0):
    """Two normal clusters, their means so far apart in the first column."""
    rows = normal(count, columns, seed)
    rows[::2, 0] += far
    return np.random.default_rng(seed).permutation(rows)


@pytest.mark.parametrize("columns", [2, 5, 20])
def test_a_cloud_is_said_to_be_one(columns):
    model = fc.FCAC().fit(federation(normal(2000, columns)))
    assert model.n_clusters_ > 1
    assert model.clearness_ < cloud.HARDLY
    assert sum(NOTE in note for note in model.notes_) == 1


@pytest.mark.parametrize("columns", [2, 5, 20])
def test_two_clusters_are_not(columns):
    model = fc.FCAC().fit(federation(apart(2000, columns, far=5.0)))
    assert model.n_clusters_ == 2
    assert model.clearness_ > cloud.HARDLY
    assert not any(NOTE in note for note in model.notes_)


def test_the_best_score_over_the_mean_of_two_clouds():
    points, rows = normal(80, 3), np.full(80, 5)
    levels = fcac_graph.clusters(points, rows, 0).levels
    rng = np.random.default_rng((0, 5))
    centred = (points - points.mean(axis=0)) / np.sqrt(80)
    usual = [
        max(level.score for level in fcac_graph.clusters(rng.normal(size=(80, 80)) @ centred, rows, 0).levels)
        for _ in range(2)
    ]
    expected = max(level.score for level in levels) / np.mean(usual)
    assert cloud.clearness(points, rows, levels, 0) == pytest.approx(expected, rel=1e-6)


def test_clouds_have_the_covariance_of_the_points(monkeypatch):
    points = normal(400, 2) @ np.array([[3.0, 0.0], [2.0, 0.5]])
    rows = np.random.default_rng(1).integers(5, 50, 400)
    levels = fcac_graph.clusters(points, rows, 0).levels
    seen, real = [], fcac_graph.clusters
    monkeypatch.setattr(cloud, "MOST", 400)
    monkeypatch.setattr(
        fcac_graph, "clusters", lambda places, own, seed: (seen.append(places), real(places, own, seed))[1]
    )
    cloud.clearness(points, rows, levels, 0)
    assert len(seen) == cloud.CLOUDS
    for drawn in seen:
        assert drawn.shape == points.shape
        assert np.cov(drawn.T) == pytest.approx(np.cov(points.T, fweights=rows), rel=0.35)


def test_of_many_points_a_sample_is_looked_at(monkeypatch):
    points, rows = normal(cloud.MOST + 50, 2), np.full(cloud.MOST + 50, 5)
    levels = fcac_graph.clusters(points, rows, 0).levels
    sizes, real = [], fcac_graph.clusters
    monkeypatch.setattr(
        fcac_graph, "clusters", lambda places, own, seed: (sizes.append(len(places)), real(places, own, seed))[1]
    )
    assert cloud.clearness(points, rows, levels, 0) > 0
    assert sizes == [cloud.MOST] * (1 + cloud.CLOUDS)


@pytest.mark.parametrize("rows", [np.ones((60, 2)), normal(12, 2)])
def test_where_nothing_is_parted_there_is_nothing_to_judge(rows):
    model = fc.FCAC().fit(federation(rows, 2))
    assert model.n_clusters_ == 1
    assert model.clearness_ is None


def test_the_published_setting_is_not_judged():
    model = fc.FCAC("published").fit(federation(apart(300, 2, far=5.0)))
    assert model.clearness_ is None


def test_it_does_not_depend_on_the_order_of_sites_and_is_kept(tmp_path):
    rows = apart(600, 3, far=4.0)
    parts = {f"site-{i}": rows[i::3] for i in range(3)}
    model = fc.FCAC().fit(fc.Federation.local(parts))
    other = fc.FCAC().fit(fc.Federation.local({f"z{9 - i}": part for i, part in enumerate(parts.values())}))
    assert model.clearness_ == other.clearness_
    model.save(tmp_path / "model.json")
    assert fc.load(tmp_path / "model.json").clearness_ == model.clearness_


def test_a_later_round_is_judged_anew():
    model = fc.FCAC().fit(federation(normal(1000, 2)))
    before = model.clearness_
    model.partial_fit(federation(normal(1000, 2, seed=1) + 30))
    assert before < cloud.HARDLY < model.clearness_
    assert not any(NOTE in note for note in model.notes_)
