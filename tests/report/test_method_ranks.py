"""Ranks, tests and the diagram, against published and hand-computed figures."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fedclust as fc
from fedclust.report import method_ranks

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("methods", "blocks", "alpha", "published"),
    [
        (4, 14, 0.05, 1.25),  # Demsar 2006, section 3.2.4
        (4, 14, 0.10, 1.12),
    ],
)
def test_critical_distances_are_the_published_ones(methods, blocks, alpha, published):
    digits = len(str(published).partition(".")[2])
    assert round(method_ranks.critical_distance(methods, blocks, alpha), digits) == published


def test_the_distance_of_paper_3_needs_sixty_blocks():
    # Fig. 10 prints .788: ten sets, three metrics, two scenarios, and q of five methods as tables have it, 2.728.
    printed = [n for n in range(2, 200) if round(2.728 * math.sqrt(5 * 6 / (6 * n)), 3) == 0.788]
    assert printed == [60]
    assert method_ranks.critical_distance(5, 60) == pytest.approx(0.788, abs=6e-4)  # with more digits of q: .7874


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (8, 3.031), (10, 3.164)])
def test_the_critical_values_are_those_of_demsars_table(methods, q):
    # Table 5 (a), level .05; q = CD over sqrt(k (k + 1) / (6 N)).
    assert method_ranks.critical_distance(methods, 1) / math.sqrt(methods * (methods + 1) / 6) == pytest.approx(
        q, abs=1e-3
    )


def test_ranks_by_hand():
    scores = [[0.9, 0.8, 0.1], [0.5, 0.5, 0.7], [0.2, 0.2, 0.2]]
    # 1 2 3; 2.5 2.5 1; 2 2 2.
    assert method_ranks.mean_ranks(scores).tolist() == pytest.approx([5.5 / 3, 6.5 / 3, 2])
    assert method_ranks.mean_ranks(scores, higher_is_better=False).tolist() == pytest.approx([6.5 / 3, 5.5 / 3, 2])


def test_friedman_and_iman_davenport_by_hand():
    scores = [[3, 2, 1], [3, 1, 2], [3, 2, 1], [2, 3, 1]]
    found = method_ranks.compare(scores, ["a", "b", "c"])
    # Rank sums 5, 8, 11: chi = 12 / (4 * 3 * 4) * (25 + 64 + 121) - 3 * 4 * 4 = 4.5; F = 3 * 4.5 / (8 - 4.5).
    assert found.ranks.tolist() == [1.25, 2, 2.75]
    assert found.chi_square == pytest.approx(4.5)
    assert found.p_value == pytest.approx(math.exp(-4.5 / 2))  # two degrees of freedom
    assert found.f_statistic == pytest.approx(13.5 / 3.5)


def test_mean_ranks_of_demsars_example_give_its_statistics():
    # 3.143, 2.000, 2.893, 1.964 over 14 sets: chi 9.28, F 3.69 (section 3.2.2).
    ranks = np.array([3.143, 2.0, 2.893, 1.964])
    chi = 12 * 14 / (4 * 5) * ((ranks**2).sum() - 4 * 25 / 4)
    assert chi == pytest.approx(9.28, abs=0.01)
    assert method_ranks._iman_davenport(chi, 14, 4)[0] == pytest.approx(3.69, abs=0.01)


def test_pairs_differ_where_they_lie_a_critical_distance_apart():
    rng = np.random.default_rng(0)
    scores = np.tile([4.0, 3.9, 3.8, 1.0], (40, 1)) + rng.normal(size=(40, 4)) * 0.3
    found = method_ranks.compare(scores, ["a", "b", "c", "d"])
    assert found.differ("a", "d")
    near = np.abs(found.ranks[:, None] - found.ranks) < found.distance
    assert np.array_equal(near, found.p_values > found.alpha)
    assert np.allclose(np.diag(found.p_values), 1)


def test_groups_are_the_longest_runs_that_do_not_differ():
    found = method_ranks.compare([[4, 3, 2, 1]] * 3 + [[1, 2, 3, 4]], list("abcd"))
    made = method_ranks.Comparison(**{**vars(found), "ranks": np.array([1.0, 1.5, 2.2, 4.0]), "distance": 1.0})
    assert made.groups() == [(0, 1), (1, 2)]
    alone = method_ranks.Comparison(**{**vars(found), "ranks": np.array([1.0, 2.5, 4.0, 5.5]), "distance": 1.0})
    assert alone.groups() == []
    whole = method_ranks.Comparison(**{**vars(found), "ranks": np.array([1.0, 1.1, 1.2, 1.3]), "distance": 1.0})
    assert whole.groups() == [(0, 3)]


def test_blocks_that_rank_alike_or_tie_everywhere_have_defined_statistics():
    alike = method_ranks.compare([[3, 2, 1]] * 5, ["a", "b", "c"])
    assert (alike.chi_square, alike.f_statistic, alike.f_p_value) == (pytest.approx(10), math.inf, 0)
    tied = method_ranks.compare([[1, 1, 1]] * 5, ["a", "b", "c"])
    assert (tied.chi_square, tied.p_value, tied.f_statistic) == (0, 1, 0)
    assert tied.groups() == [(0, 2)]


@pytest.mark.parametrize(
    ("scores", "names"),
    [
        ([[1, 2], [2, 1]], ["a", "b"]),
        ([[1, 2, 3]], ["a", "b", "c"]),
        ([[1, 2, 3], [1, 2, np.nan]], ["a", "b", "c"]),
        ([[1, 2, 3], [1, 2, 3]], ["a", "b"]),
        ([[1, 2, 3], [1, 2, 3]], ["a", "b", "b"]),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(scores, names):
    with pytest.raises(fc.StudyError):
        method_ranks.compare(scores, names)


def test_the_diagram_names_every_method_and_draws_every_bar():
    rng = np.random.default_rng(1)
    names = ["FCAC", "k-means of all rows, true K", "k-FED", "MUFC", "a < b"]
    found = method_ranks.compare(rng.normal(size=(60, 5)) + np.array([2, 1.8, 1, 0.2, 0]), names)
    drawn = method_ranks.diagram(found)
    root = ET.fromstring(drawn)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert all(any(name in text for text in texts) for name in names)
    assert any("CD = 0.787 (60 blocks, level 0.05)" in text for text in texts)
    bars = [line for line in root.iter(f"{SVG}line") if line.get("class") == "bar"]
    assert len(bars) == len(found.groups())
    width, height = float(root.get("width")), float(root.get("height"))
    for text in root.iter(f"{SVG}text"):
        room = float(text.get("x")) if text.get("text-anchor") == "end" else width - float(text.get("x"))
        assert room > 6 * len(text.text) or text.get("text-anchor") == "middle"
    assert all(0 <= float(text.get("y")) <= height for text in root.iter(f"{SVG}text"))
