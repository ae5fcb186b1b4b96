"""Every number that sums rows has a floor for the rows behind it, whether or not the answer counts them."""

from dataclasses import replace

import numpy as np
import pytest

from fedclust.algorithms import kfed, mufc
from fedclust.algorithms.cmeans import column_split, row_split
from fedclust.algorithms.gaussian_mixture import densities
from fedclust.algorithms.summary_clustering import summaries
from fedclust.app.serve import import_questions
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call, Refusal
from fedclust.core.site_interface import View
from fedclust.kernels.units import TERM_BITS
from fedclust.questions import cluster_indices, pca
from fedclust.questions.choice_of_k import centers_for_each_k
from fedclust.questions.choice_of_k.centers_for_each_k import CenterSet, CenterSets
from fedclust.questions.index_terms import IndexTerms
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source

import_questions()
VIEW = View(np.full(2, 5, np.int32))
REACH = np.full(2, 5, np.int32)
CENTERS = np.array([[0.0, 0.0], [20.0, -13.0]])

# Sums without a count of the rows behind them, and why `min_rows` is enough, or no number of rows is meant.
OVER_ALL_ROWS = {
    "averaged_fcm.weighted_centers": "for comparison; withheld by every profile but none",
    "gradient_fcm.local_gradient": "for comparison; withheld by every profile but none",
    "local_fcm.cost": "one number over all rows; withheld by every profile but none",
    "blind_aggregation.add": "encrypted numbers; the answer inside passed the gate as itself",
    "mufc.cell_power_sums": "how many sites took part",
}


def rows_with(aside):
    """Three hundred rows around 0, some of them moved near the second centre."""
    rows = np.random.default_rng(5).normal(size=(300, 2))
    rows[7 : 7 + aside] += CENTERS[1]
    return rows


def asked(handler, message, rows, policy=PROFILES["cms"]):
    desk = SiteServer(SiteData("a", open_source(rows, site="a")), policy)
    reply = desk.answer(Call("r", 1, handler, message, "total", ("a", "b", "c")))
    return reply.code if isinstance(reply, Refusal) else None


def turn(rows):
    return HandlerContext(
        SiteData("a", open_source(np.asarray(rows, float), site="a")), tuple(range(np.shape(rows)[1])), {}
    )


def lots(places=CENTERS[:0]):
    return CenterSets(VIEW, REACH, (CenterSet(CENTERS if not len(places) else CENTERS[:1], places),))


BY_CLUSTER = {
    "row_split.moments": row_split.make_question(VIEW, CENTERS, 1.0),
    "centers_for_each_k.cluster_moments": lots(),
    "centers_for_each_k.widths": lots(),
    "centers_for_each_k.gains": lots(places=CENTERS[1:]),
    "cluster_indices.label_sums": cluster_indices.LabelsQuestion(VIEW, CENTERS),
    "cluster_indices.label_scatter": cluster_indices.LabelScatterQuestion(VIEW, CENTERS, CENTERS, 12),
    "cluster_indices.index_sums": cluster_indices.IndexQuestion(
        VIEW, CENTERS, IndexTerms(1.0, 1.0, 12, ("members", "distances"))
    ),
}


@pytest.mark.parametrize("handler", BY_CLUSTER)
def test_a_cluster_of_one_row_is_kept_in_and_one_of_many_is_not(handler):
    assert asked(handler, BY_CLUSTER[handler], rows_with(1)) == "abstains"
    assert asked(handler, BY_CLUSTER[handler], rows_with(10)) == "abstains"
    assert asked(handler, BY_CLUSTER[handler], rows_with(150)) is None


def test_fuzzy_members_are_counted_by_their_weights():
    ask = cluster_indices.IndexQuestion(VIEW, CENTERS, IndexTerms(1.05, 1.0, 12, ("members",)))
    assert asked("cluster_indices.index_sums", ask, rows_with(1)) == "abstains"
    assert asked("cluster_indices.index_sums", ask, rows_with(150)) is None


def test_products_of_few_rows_are_kept_in():
    ask = densities.ScatterQuestion(VIEW, REACH)
    assert asked("densities.scatter_matrix", ask, rows_with(0)[:2]) == "too-few-rows"
    assert asked("densities.scatter_matrix", ask, rows_with(0)) is None


def test_a_product_of_columns_that_one_row_has_both_of_is_kept_in():
    rows = rows_with(0)
    rows[1::2, 0], rows[::2, 1] = np.nan, np.nan
    rows[4] = 1.5, 2.5
    view = View(np.full(2, 5, np.int32), missing="partial")
    ask = pca.ProductsQuestion(view, np.arange(2), np.zeros(2), np.full(3, -40, np.int32))
    assert asked("pca.deviation_products", ask, rows) == "abstains"
    rows[:100] = 1.5, 2.5
    assert asked("pca.deviation_products", ask, rows) is None


def test_what_is_behind_an_answer_by_hand():
    site = turn([[0.0, 0.0], [3.0, 0.0], [4.0, 0.0], [20.0, -13.0]])
    assert centers_for_each_k.widths.row_weights(site, lots()).tolist() == [[3.0, 1.0], [3.0, 1.0], [1.0, 1.0]]
    assert cluster_indices.label_scatter.row_weights(site, BY_CLUSTER["cluster_indices.label_scatter"])[0].tolist() == [
        3.0,
        1.0,
    ]
    # From (0, 0) to (4, 0) the squared distances fall by 0, 9 - 1 and 16 - 0, and of the last row by 569 - 425.
    ask = lots(places=np.array([[4.0, 0.0]]))
    share = 2.0 ** (ask.distance_units()[0] + TERM_BITS)
    found = centers_for_each_k.gains.row_weights(site, ask)
    assert found[:, 0].tolist() == [168 / share, (8**2 + 16**2 + 144**2) / share**2, 144 / share]


def test_one_row_that_gains_most_is_seen_among_many_that_gain_little():
    rows = np.r_[np.full((50, 1), 1.01), [[2.0]]]
    ask = CenterSets(View(np.array([3], np.int32)), REACH[:1], (CenterSet(np.zeros((1, 1)), np.full((1, 1), 2.0)),))
    assert asked("centers_for_each_k.gains", ask, rows, Policy("own", min_cell=5)) == "abstains"
    assert asked("centers_for_each_k.gains", ask, rows[:50], Policy("own", min_cell=5)) is None


def test_a_distance_of_one_row_leaves_under_masks_only():
    rules = Policy("own", min_cell=2)
    desk = SiteServer(SiteData("a", open_source(rows_with(0), site="a")), rules)
    site = turn(rows_with(0))
    site.memory = {"centers": CENTERS}
    answer = column_split.measure_distances.answer(site, column_split.RowSpan(0, 300, -60))
    call = Call("r", 1, "column_split.measure_distances", column_split.RowSpan(0, 300, -60), "total", ("a", "b", "c"))
    assert desk.gate.judge(call, column_split.measure_distances, answer, site) == "abstains"
    assert desk.gate.judge(replace(call, masks="lasting-1"), column_split.measure_distances, answer, site) is None


@pytest.mark.parametrize("floor", [4, 5])
def test_a_study_cannot_ask_for_points_of_fewer_rows_than_the_site_allows(floor):
    grid = mufc.Grid(np.full(2, -32.0), np.full(2, 32.0), 8, np.ones(1, np.int64))
    questions = {
        "kfed.device_centers": (kfed.DeviceQuestion(VIEW, 2, floor, 0), "each"),
        "summaries.summarise_rows": (summaries.Batch(VIEW, floor, fresh=True, damped=True), "each"),
        "mufc.cell_power_sums": (mufc.Count(VIEW, grid, 2, floor, 6, 0, again=False), "total"),
    }
    rows = np.random.default_rng(5).normal(size=(600, 2))
    for handler, (message, want) in questions.items():
        desk = SiteServer(SiteData("a", open_source(rows, site="a")), PROFILES["standard"])
        reply = desk.answer(Call("r", 1, handler, message, want, ("a", "b", "c")))
        assert (reply.code if isinstance(reply, Refusal) else None) == ("floor-too-low" if floor < 5 else None)


def test_every_sum_over_rows_says_how_many_rows_are_behind_it():
    silent = set()
    for name, handler in HANDLERS.items():
        if not handler.answer.__module__.startswith("fedclust."):
            continue  # another test's
        sums = [d for d in handler.release.schema().values() if d.combine == "sum"]
        if any(d.kind in ("sums", "weights") for d in sums) and not any(d.cells for d in sums):
            silent |= {name} if handler.row_weights is None else set()
    assert silent == set(OVER_ALL_ROWS)
