"""MUFC: grids by hand, and sums over a field that give the plain sum of the sites' histograms."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedclust as fc
from fedclust.algorithms import mufc
from fedclust.algorithms.mufc import Count, Grid
from fedclust.algorithms.shared import weighted_kmeans
from fedclust.core.effects import HANDLERS, Keep
from fedclust.core.errors import RunFailed
from fedclust.core.ring import Exact
from fedclust.core.site_interface import View
from fedclust.privacy import sparse_sums
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source


def grid(width, levels, low=0.0, high=1.0, seed=0):
    parts = -(-width // mufc.digits_per_number(levels))
    mix = np.random.default_rng(seed).integers(1, sparse_sums.FIELD_PRIME, parts)
    return Grid(np.full(width, low), np.full(width, high), levels, mix)


def turn(X, party="p", memory=None):
    return HandlerContext(SiteData(party, open_source(X, site=party)), (0, 1), memory or {})


def groups(seed=0, rows=90, width=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) * 0.02 + np.arange(rows)[:, None] % 3 * 0.3 + 0.1


def test_cells_by_hand():
    of = grid(2, 4, low=-1.0, high=1.0)
    points = np.array([[-1.0, 0.0], [0.99, 1.0], [-9.0, 0.4]])
    assert of.cells(points).tolist() == [[0, 2], [3, 3], [0, 2]]  # the edge belongs to the last, beyond to the nearest
    assert of.cell_centers(np.array([[0, 2]])).tolist() == [[-0.75, 0.25]]
    assert of.numbers_from_cell(np.array([3, 1])) == [13]
    assert of.label([13]) == 13


@given(st.integers(1, 70), st.integers(1, 3000), st.data())
def test_a_cell_comes_back_from_its_numbers(width, levels, data):
    of = grid(width, levels)
    cell = data.draw(st.lists(st.integers(0, levels - 1), min_size=width, max_size=width))
    numbers = of.numbers_from_cell(np.array(cell))
    assert of.cell_from_numbers(numbers) == cell
    assert max(numbers) < sparse_sums.FIELD_PRIME


def test_a_number_outside_the_grid_is_refused():
    with pytest.raises(RunFailed, match="outside the grid"):
        grid(2, 4).cell_from_numbers([16])


def plain(site, ask):
    """The histogram of one site in the clear: the same picks, the same cells, no sums."""
    means, sizes = mufc._means_around_seeds(site, ask, mufc._pick_seeds(site, ask)[0])
    held = Counter()
    for cell, size in zip(ask.grid.cells(means).tolist(), sizes.tolist(), strict=True):
        held[tuple(cell)] += size
    return held


def settled(protocol, sites):
    """A protocol of totals over sites in the clear."""
    answer = None
    while True:
        try:
            ask = protocol.send(answer)
        except StopIteration as stop:
            return stop.value
        found = [ask.handler.answer(site, ask.message) for site in sites]
        answer = ask.handler.release.total([f.release if isinstance(f, Keep) else f for f in found]), ()


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6), st.integers(2, 400))
def test_the_total_is_the_plain_sum_of_the_histograms(width, parties, count, seed, levels):
    rng = np.random.default_rng(seed)
    sites = [turn(rng.random((int(rng.integers(1, 30)), width)), f"p{i}") for i in range(parties)]
    of = grid(width, levels, seed=seed)
    ask = Count(View(np.zeros(width, np.int32)), of, count, 2, count * parties, seed, again=False)
    cells, weights, (_, silent) = settled(mufc.histogram(ask), sites)
    expected = sum((plain(site, ask) for site in sites), Counter())
    assert {tuple(c): w for c, w in zip(cells.tolist(), weights.tolist(), strict=True)} == expected
    assert silent == sum(not plain(site, ask) for site in sites)
    assert silent >= sum(site.rows <= count for site in sites)
    assert cells.tolist() == sorted(cells.tolist())


def test_sites_that_share_a_cell_add_up_there():
    X = np.array([[0.11], [0.17], [0.91], [0.93], [0.97]])
    of = grid(1, 10)
    ask = Count(View(np.zeros(1, np.int32)), of, 2, 2, 4, 0, again=False)
    cells, weights, _ = settled(mufc.histogram(ask), [turn(X, "a"), turn(X[::-1], "b")])
    assert dict(zip(cells.ravel().tolist(), weights.tolist(), strict=True)) == {1: 4, 9: 6}


def test_what_is_rounded_is_the_mean_of_the_rows_around_a_pick():
    X = np.array([[0.0, 0.0], [0.2, 0.0], [0.1, 0.6], [1.0, 1.0], [0.8, 0.9]])
    ask = Count(View(np.zeros(2, np.int32)), grid(2, 100), 2, 2, 2, 0, again=False)
    means, sizes = mufc._means_around_seeds(turn(X), ask, np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert np.allclose(means, [[0.1, 0.2], [0.9, 0.95]], atol=1e-15)
    assert sizes.tolist() == [3, 2]


def test_no_cell_of_whole_numbers_is_a_row():
    rng = np.random.default_rng(4)
    parts = {name: rng.integers(0, 17, (200, 16)).astype(float) for name in "abc"}
    sites = [turn(X, name) for name, X in parts.items()]
    of = grid(16, 71, high=16.0)  # finer than the numbers: the cell of a row is that row
    ask = Count(View(np.full(16, 4, np.int32)), of, 10, 5, 30, 0, again=False)
    middles = of.cell_centers(settled(mufc.histogram(ask), sites)[0])
    rows = {tuple(row) for X in parts.values() for row in X}
    assert len(middles) >= 20
    assert not [m for m in middles if tuple(np.rint(m)) in rows]
    picks = of.cell_centers(of.cells(np.concatenate([mufc._pick_seeds(site, ask)[0] for site in sites])))
    assert all(tuple(np.rint(m)) in rows for m in picks)  # as it would be


def test_rows_all_alike_around_a_pick_go_to_the_others_or_nowhere():
    X = np.array([[0.5]] * 6 + [[0.1], [0.12]])
    ask = Count(View(np.zeros(1, np.int32)), grid(1, 10), 2, 2, 2, 0, again=False)
    means, sizes = mufc._means_around_seeds(turn(X), ask, np.array([[0.5], [0.1]]))
    assert sizes.tolist() == [8]
    assert means.ravel() == pytest.approx([0.4025])
    assert len(mufc._means_around_seeds(turn(X[:6]), ask, np.array([[0.5]]))[0]) == 0


def test_a_pick_with_one_row_leaves_it_to_the_others():
    X = np.array([[0.1], [0.11], [0.12], [0.9]])
    of = grid(1, 10)
    for seed in range(6):
        ask = Count(View(np.zeros(1, np.int32)), of, 2, 2, 2, seed, again=False)
        cells, weights, _ = settled(mufc.histogram(ask), [turn(X)])
        assert (cells.ravel().tolist(), weights.tolist()) == ([3], [4])  # the mean is .3075


def test_what_leaves_one_site_shows_nothing_but_by_its_residue():
    ask = Count(View(np.zeros(2, np.int32)), grid(2, 10), 3, 2, 3, 0, again=False)
    first, second = (HANDLERS["mufc.cell_power_sums"].answer(turn(groups(), name), ask).release for name in ("a", "b"))
    # The same rows at two sites with different streams: equal counts may differ in picks, but no multiple is alike.
    multiples = [[n // sparse_sums.FIELD_PRIME for n in one.counts.to_integers()] for one in (first, second)]
    assert multiples[0] != multiples[1]
    assert all(0 <= n < 1 << sparse_sums.MULTIPLE_BITS for own in multiples for n in own)
    again = HANDLERS["mufc.cell_power_sums"].answer(turn(groups(), "a"), ask).release
    assert again.counts == first.counts  # a handler is pure
    finer = Count(ask.view, grid(2, 11), 3, 2, 3, 0, again=False)
    other = HANDLERS["mufc.cell_power_sums"].answer(turn(groups(), "a"), finer).release
    assert [n // sparse_sums.FIELD_PRIME for n in other.counts.to_integers()] != multiples[
        0
    ]  # another question, another multiple


def test_weighted_kmeans_by_hand():
    points = np.array([[0.0], [1.0], [4.0], [10.0]])
    cost, centers = weighted_kmeans.kmeans(points, np.array([3, 1, 1, 2]), np.array([[0.0], [10.0]]))
    assert centers.ravel().tolist() == [1, 10]  # (0 * 3 + 1 + 4) / 5
    assert cost == 3 * 1 + 0 + 9


@pytest.mark.parametrize("width", [2, 40])
def test_groups_are_found_over_few_and_many_columns(width):
    X = groups(width=width)
    fed = fc.Federation.local({"a": X[:40], "b": X[40:70], "c": X[70:]})
    model = fc.MUFC(3, local_clusters=4).fit(fed)
    assert fc.agreement.ari(model.predict(X), np.arange(90) % 3) == 1
    assert model.notes_[0].startswith("Not lossless")


def test_a_site_with_too_few_rows_takes_no_part_and_the_run_says_so():
    X = groups()
    model = fc.MUFC(3, bounds=(0, 1)).fit(fc.Federation.local({"a": X[:50], "b": X[50:87], "c": X[87:]}))
    assert (
        "1 of 3 sites abstained, because they have too few rows for 3 starting points or all their rows are equal."
        in model.notes_
    )


def test_rows_all_alike_are_not_sent():
    alike = np.full((9, 2), 2.5)
    with pytest.raises(fc.DataError, match="no site could send a centre"):
        fc.MUFC(2).fit(fc.Federation.local({"a": alike, "b": alike}))
    other = np.random.default_rng(0).normal(size=(20, 2))
    model = fc.MUFC(6, local_clusters=2).fit(fc.Federation.local({"a": alike, "b": other}))
    assert np.isfinite(model.cluster_centers_).all()
    assert any("were drawn at random" in note for note in model.notes_)
    assert not (model.cluster_centers_ == 2.5).all(axis=1).any()


def test_an_altered_sum_is_not_taken_for_a_histogram():
    ask = Count(View(np.zeros(2, np.int32)), grid(2, 10), 3, 2, 3, 0, again=False)
    protocol = mufc.histogram(ask)
    effect = protocol.send(None)
    right = effect.handler.answer(turn(groups()), ask).release
    wrong = mufc.CellPowerSums(Exact.from_counts(np.arange(1, 7) ** 2 + 5), right.places, right.reseeded)
    with pytest.raises(RunFailed):
        protocol.send((wrong, ()))
