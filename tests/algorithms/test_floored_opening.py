"""The rule of floored opening, by hand and over random tables, and what a site refuses of it."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import fedclust as fc
from fedclust.algorithms.cmeans import floored_opening as floored
from fedclust.algorithms.cmeans import row_split
from fedclust.algorithms.cmeans.described_cells import DescribedCells
from fedclust.algorithms.cmeans.opened_cells import (
    MAX_PARTITIONS,
    OpenedPartition,
    Partition,
    nearest_partition,
    record_opening,
    whole_table,
)
from fedclust.app.analysis import describe
from fedclust.app.audit.observer_record import record_federation
from fedclust.app.audit.shown_rows import listen_to_sums
from fedclust.core.envelope import Call, Refusal
from fedclust.core.errors import StudyError, WireError
from fedclust.core.site_interface import View
from fedclust.privacy import floor_test
from fedclust.questions.choice_of_k.component_questions import ComponentSumsQuestion
from fedclust.site.policy import find_policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source

COLUMN = View(np.array([7], np.int32))


def fit(data, k=2, **options):
    settings = {"opening": "floored", "floor": 3, "tol": 0.0, **options}
    return fc.KMeans(k, **settings).fit(data)


def rows(*values):
    return np.array(values, float)[:, None]


def split(X, parts, rng):
    cuts = np.sort(rng.choice(np.arange(1, len(X)), parts - 1, replace=False))
    return {f"s{i}": own for i, own in enumerate(np.split(X[rng.permutation(len(X))], cuts))}


def partitions_of(fed, X):
    """The opened cells of each partition of a run, as sets of rows, by labels computed here."""
    found = []
    for one in fed.opening_record.earlier:
        if one.partition.kind == "whole":
            found.append([frozenset(range(len(X)))])
            continue
        view, centers = one.partition.view, one.partition.arrays["centers"]
        seen = X if view.origin is None else (X - view.origin) / view.spread
        labels = ((seen[:, None, :] - centers) ** 2).sum(axis=2).argmin(axis=1)
        found.append([frozenset(np.flatnonzero(labels == c).tolist()) for c in np.flatnonzero(one.opened)])
    return found


# --- The rule --------------------------------------------------------------------------------------------------------


def test_a_single_row_that_moves_leaves_both_clusters_closed():
    # Round 1, centres 0 and 10: {0, 1, 2, 4.75} and {5.25, 10, 10, 10}; means 1.9375 and 8.8125, border 5.375.
    # Round 2 would move the single row 5.25 to the first cluster. Exact k-means opens both sums, and what changed in
    # them is that row. With a floor of 3 both stay closed, and the fit ends at the means of round 1.
    X = rows(0, 1, 2, 4.75, 5.25, 10, 10, 10)
    exact = fit(X, init=[[0.0], [10.0]], opening="exact")
    floored_fit = fit(X, init=[[0.0], [10.0]])
    assert exact.cluster_sizes_.tolist() == [5, 3]
    assert floored_fit.cluster_sizes_.tolist() == [4, 4]
    assert floored_fit.cluster_centers_.ravel().tolist() == [1.9375, 8.8125]
    assert floored_fit.n_iter_ == 2
    assert "stayed closed 2 times in 1 of 2 iterations" in " ".join(floored_fit.notes_)


def test_changes_add_up_until_the_floor_is_reached():
    # Rows 5.1, 5.2 and 5.3 leave the second cluster together: three rows are the floor, so both sums are opened. The
    # means of round 1 are 1.975 and 9.09, whose border is 5.53.
    X = rows(0, 1, 2, 4.9, 5.1, 5.2, 5.3, 12, 12, 12, 12)
    model = fit(X, init=[[0.0], [10.0]])
    assert model.cluster_sizes_.tolist() == fit(X, init=[[0.0], [10.0]], opening="exact").cluster_sizes_.tolist()
    assert not any("closed" in note for note in model.notes_)


def test_a_cluster_of_fewer_rows_than_the_floor_is_never_opened():
    # Two rows near 50: the cluster keeps its initial centre. The sum of all rows less those of both other clusters
    # would show the two rows, so only the first of them is opened.
    X = rows(0, 0, 1, 1, 2, 10, 10, 11, 11, 12, 50, 51)
    model = fit(X, 3, init=[[0.0], [10.0], [50.0]])
    assert model.cluster_centers_[2].tolist() == [50.0]
    assert model.cluster_sizes_.tolist() == [5, 0, 0]
    assert model.inertia_ == float("inf")
    assert "never opened: 2" in " ".join(model.notes_)


def test_two_clusters_of_which_one_is_small_both_stay_closed():
    # The sum of all rows less that of the large cluster would be the two rows near 50.
    X = rows(0, 0, 1, 1, 2, 50, 51)
    model = fit(X, 2, init=[[0.0], [50.0]])
    assert model.cluster_centers_.ravel().tolist() == [0.0, 50.0]
    assert model.n_iter_ == 1


def test_the_inertia_is_that_of_the_cells_that_were_opened():
    # Cells {0, 1, 2, 4.9} around 1.975 and {5.1, 10, 10, 10} around 8.775.
    model = fit(rows(0, 1, 2, 4.9, 5.1, 10, 10, 10), init=[[0.0], [10.0]])
    first = sum((x - 1.975) ** 2 for x in (0, 1, 2, 4.9))
    second = sum((x - 8.775) ** 2 for x in (5.1, 10, 10, 10))
    assert model.inertia_ == pytest.approx(first + second, rel=1e-12)


def test_a_floor_of_one_row_is_exact_k_means_to_the_bit():
    X = np.random.default_rng(3).normal(size=(120, 3))
    exact, model = (fit(X, 4, init="box", opening=opening, floor=1) for opening in ("exact", "floored"))
    assert (model.cluster_centers_ == exact.cluster_centers_).all()
    assert [entry["shift"] for entry in model.history_] == [entry["shift"] for entry in exact.history_]


@pytest.mark.parametrize("seed", range(12))
def test_no_two_opened_cells_differ_by_fewer_rows_than_the_floor(seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(int(rng.integers(40, 300)), 2)) * 4)  # with equal rows
    floor = int(rng.integers(2, 15))
    fed = fc.Federation.local(split(X, int(rng.integers(1, 5)), rng))
    for k in (2, 5):  # two fits of one run: the cells of the first one count in the second one
        fit(fed, k, init="box", floor=floor, random_state=seed, tol=1e-6)
    partitions = partitions_of(fed, X)
    cells = [frozenset(), *(cell for own in partitions for cell in own)]
    unions = [a | b for own in partitions for a, b in combinations(own, 2)]
    assert len(cells) > 2
    apart = {len(a ^ b) for a in cells for b in (*cells, *unions)}
    assert not apart & set(range(1, floor))


def test_cells_of_another_kind_of_partition_count():
    # Cells {0, 1, 2, 3} and the rest, opened by something else, change nothing. A cell {0, 1, 2} keeps the cluster
    # {0, 1, 2, 3} closed, because their difference is one row.
    X = rows(0, 1, 2, 3, 10, 11, 12, 13)
    fed = fc.Federation.local({"a": X})
    view = View(np.array([4], np.int32))
    fed.opening_record.add(nearest_partition(view, rows(0.5, 12.0)), np.array([True, True]))
    model = fit(fed, 2, init=[[1.0], [12.0]], floor=4, bounds=(0, 16))
    assert model.cluster_sizes_.tolist() == [4, 4]
    fed = fc.Federation.local({"a": X})
    fed.opening_record.add(nearest_partition(view, rows(1.0, 4.0)), np.array([True, False]))  # {0, 1, 2}
    # The other cluster stays closed as well: the sum of all rows less both others would be the row 3.
    assert fit(fed, 2, init=[[1.0], [12.0]], floor=4, bounds=(0, 16)).cluster_sizes_.tolist() == [0, 0]


# --- The same result everywhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (3, 4, 5))])
def test_equals_the_pooled_fit_for_every_spread_and_aggregation(seed):
    rng = np.random.default_rng(100 + seed)
    X = rng.normal(size=(150, 3)) + 2.0 * rng.integers(3, size=150)[:, None]
    settings = {"k": 4, "init": "box", "floor": 6, "scale": "standardise", "random_state": seed}
    pooled = fit(X, **settings)
    for parties, how in ((2, {}), (3, {}), (7, {}), (3, {"aggregation": "secure"}), (5, {"aggregation": "blind"})):
        early = {"early_stopping": True} if "blind" in how.values() else {}
        model = fit(fc.Federation.local(split(X, parties, rng), **how, **early), **settings)
        assert (model.cluster_centers_ == pooled.cluster_centers_).all()
        assert (model.inertia_, model.history_, model.notes_) == (pooled.inertia_, pooled.history_, pooled.notes_)


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
@pytest.mark.parametrize("sites", [1, 3, 5])
def test_rows_with_missing_values_are_left_out_as_if_they_had_never_been_there(sites, aggregation):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(200, 2)) + 8.0 * rng.integers(3, size=(200, 1))
    X[rng.random(X.shape) < 0.05] = np.nan
    whole = fit(X[~np.isnan(X).any(axis=1)], k=3)
    fed = fc.Federation.local(split(X, sites, rng), aggregation=aggregation if sites >= 3 else "plain")
    spread = fit(fed, k=3, missing="drop")
    assert whole.n_iter_ == spread.n_iter_
    assert np.array_equal(whole.cluster_centers_, spread.cluster_centers_)
    chosen = fc.select_k(fc.KMeans(opening="floored", floor=3, missing="drop"), fed, ks=range(1, 6))
    assert chosen.k == 3


def test_a_blind_run_of_all_rounds_equals_the_pooled_fit():
    X = np.random.default_rng(5).normal(size=(90, 2))
    parts = split(X, 3, np.random.default_rng(6))
    settings = {"k": 3, "init": "box", "bounds": (-8, 8), "floor": 5, "max_iter": 6}
    model = fit(fc.Federation.local(parts, aggregation="blind"), **settings)
    assert (model.cluster_centers_ == fit(X, tol=None, **settings).cluster_centers_).all()


def test_a_second_fit_of_the_same_run_gives_the_same_model():
    X = np.random.default_rng(7).normal(size=(80, 2))
    fed = fc.Federation.local(split(X, 3, np.random.default_rng(8)))
    first, second = (fit(fed, 3, init="box", floor=5) for _ in range(2))
    assert (first.cluster_centers_ == second.cluster_centers_).all()
    assert first.history_ == second.history_


@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_a_run_resumes_from_its_journal(tmp_path, aggregation):
    X = np.random.default_rng(9).normal(size=(120, 2))
    parts = split(X, 3, np.random.default_rng(10))

    def federation():
        return fc.Federation.local(parts, aggregation=aggregation, run=tmp_path / "run")

    class Stops(Exception):
        pass

    class StoppingEngine:
        def __init__(self, engine, after):
            self.engine, self.parties, self.left = engine, engine.parties, after

        def exchange(self, calls, **how):
            if not self.left:
                raise Stops
            self.left -= 1
            return self.engine.exchange(calls, **how)

    settings = {"k": 3, "init": "box", "floor": 5}
    whole = fit(X, **settings)
    model, stops = None, 0
    while model is None:
        with federation() as fed:
            fed.use_engine(StoppingEngine(fed.engine, 3))
            try:
                model = fit(fed, **settings)
            except Stops:
                stops += 1
    assert stops > 5
    assert (model.cluster_centers_ == whole.cluster_centers_).all()


# --- What a site refuses ---------------------------------------------------------------------------------------------


class Lies:
    """An engine that changes the questions of one handler before the sites see them."""

    def __init__(self, fed, name, change):
        self.engine, self.parties = fed.engine, fed.engine.parties
        self.name, self.change, self.refusals = name, change, []
        fed.use_engine(self)

    def exchange(self, calls, **how):
        first = next(iter(calls.values()))
        if first.handler == self.name and (changed := self.change(first.message)) is not None:
            calls = {p: replace_message(call, changed) for p, call in calls.items()}
        replies = self.engine.exchange(calls, **how)
        self.refusals += [own.code for own in replies.values() if isinstance(own, Refusal)]
        return replies


def replace_message(call, message):
    return Call(call.run, call.step, call.handler, message, call.want, call.cohort, call.masks)


def table():
    X = np.random.default_rng(2).normal(size=(90, 2))
    return fc.Federation.local(split(X, 3, np.random.default_rng(1)), aggregation="secure")


def refusals_of(change, name="floored_opening.open_moments"):
    fed = table()
    liar = Lies(fed, name, change)
    with pytest.raises(fc.FedclustError):
        fit(fed, 6, init="box", floor=8, max_iter=20)
    return set(liar.refusals)


def test_a_site_refuses_to_open_a_cluster_that_the_tester_did_not_allow():
    def open_all(ask):
        return None if ask.allowed.all() else replace(ask, allowed=np.ones(len(ask.allowed), bool))

    assert refusals_of(open_all) == {"keys-refused"}


def test_a_site_refuses_an_answer_of_the_tester_to_another_question():
    def other_centers(ask):
        moved = nearest_partition(ask.view, ask.centers + 0.125)
        return replace(ask, centers=ask.centers + 0.125, asked=replace(ask.asked, partition=moved))

    assert refusals_of(other_centers) == {"keys-refused"}


def test_a_site_refuses_other_centres_than_those_that_were_tested():
    assert refusals_of(lambda ask: replace(ask, centers=ask.centers + 0.125)) == {"not-understood"}


def test_a_site_refuses_a_question_that_leaves_out_cells_opened_before():
    fed = table()
    fit(fed, 3, init="box", floor=8)
    fed.opening_record.earlier = ()  # the coordinator forgets; every site remembers
    with pytest.raises(fc.FedclustError, match="missing from the question"):
        fit(fed, 4, init="box", floor=8)


def test_a_site_refuses_roles_that_leave_sites_out():
    def without_tester(ask):
        return replace(ask, roles=floored.Roles("", ask.roles.hiders))

    assert refusals_of(without_tester, "floored_opening.share_counts") == {"keys-refused"}


def test_a_question_with_too_many_partitions_is_refused():
    one = OpenedPartition(whole_table(COLUMN), np.ones(1, bool))
    with pytest.raises(WireError):
        floored.check_partitions((one,) * (MAX_PARTITIONS + 1), COLUMN)
    with pytest.raises(WireError):
        floored.check_partitions((OpenedPartition(Partition("unknown", COLUMN, {}, 1), np.ones(1, bool)),), COLUMN)


# --- The parts -------------------------------------------------------------------------------------------------------


def test_a_partition_is_recorded_once_with_all_its_opened_cells():
    both = nearest_partition(COLUMN, rows(0.0, 1.0))
    found = record_opening((), both, np.array([True, False]))
    found = record_opening(found, nearest_partition(COLUMN, rows(0.0, 1.0)), np.array([False, True]))
    assert len(found) == 1
    assert found[0].opened.tolist() == [True, True]


@pytest.mark.parametrize("sites", [1, 2, 3, 6])
@pytest.mark.parametrize("floor", [1, 2, 10])
def test_the_test_finds_exactly_the_counts_between_one_and_the_floor(sites, floor):
    rng = np.random.default_rng(sites * 100 + floor)
    parts = rng.integers(0, 6, size=(sites, 5, 7)) * rng.integers(0, 2, size=(5, 7))
    residues = floor_test.Residues.for_counts(floor, sites)
    shared = floor_test.SharedSecret(b"s" * 32, b"q", sites, residues)
    clipped = [floor_test.clip_counts(own, floor) for own in parts]
    hidden = [floor_test.hide_counts(own, floor, shared, place) for place, own in enumerate(clipped)]
    total = parts.sum(axis=0)
    assert residues.count_forbidden(hidden).tolist() == ((total > 0) & (total < floor)).sum(axis=1).tolist()


def test_what_the_tester_sees_of_a_permitted_count_does_not_depend_on_the_count():
    # With a fresh secret each time, the values for counts 0 and 20 have the same distribution: no zero, and a mean of
    # half the prime within five standard errors.
    residues = floor_test.Residues.for_counts(10, 2)
    for count in (0, 20):
        seen = []
        for trial in range(200):
            shared = floor_test.SharedSecret(trial.to_bytes(32, "big"), b"q", 2, residues)
            parts = [np.array([[count]]), np.array([[0]])]
            hidden = [floor_test.hide_counts(own, 10, shared, place) for place, own in enumerate(parts)]
            seen.append(sum(hidden) % residues.prime)
        values = np.concatenate(seen).ravel() / residues.prime
        assert values.min() > 0
        assert abs(values.mean() - 0.5) < 5 * (1 / 12) ** 0.5 / len(values) ** 0.5


@pytest.mark.parametrize(("floor", "sites", "width"), [(10, 25, 1), (10, 26, 2), (200, 3, 2), (10_000, 4, 4)])
def test_residues_are_as_short_as_the_counts_of_all_sites_permit(floor, sites, width):
    residues = floor_test.Residues.for_counts(floor, sites)
    values = np.array([[0, residues.prime - 1]])
    assert len(residues.pack(values)) == 2 * width
    assert residues.unpack(residues.pack(values), (1, 2)).tolist() == values.tolist()
    shared = floor_test.SharedSecret(b"s" * 32, b"q", 2, residues)
    most = floor * sites  # no site counts more than the floor
    hidden = [floor_test.hide_counts(np.array([[own]]), floor, shared, place) for place, own in enumerate([most, 0])]
    assert residues.count_forbidden(hidden).tolist() == [0]


def test_a_site_of_a_floored_study_refuses_the_sums_of_every_cluster(tmp_path):
    # Unlike the lies above, this question is one of exact k-means: the site knows from the study that it may not come.
    server = SiteServer(SiteData("a", open_source(rows(*range(30)), site="a"), {}), find_policy("none"), floored=True)
    ask = row_split.make_question(COLUMN, rows(0.0, 20.0), 1.0)
    reply = server.answer(Call("run", 1, row_split.moments.name, ask, "total", ("a",)))
    assert reply.code == "handler-not-allowed"


# --- The description -------------------------------------------------------------------------------------------------


def test_the_description_asks_only_about_cells_that_were_opened():
    X = np.random.default_rng(11).normal(size=(200, 2))
    fed = fc.Federation.local(split(X, 3, np.random.default_rng(12)), aggregation="secure")
    recording = record_federation(fed)
    model = fit(fed, 3, init="box", floor=10)
    asked = len(recording.opened_sums)
    assert any("stayed closed" in note for note in model.notes_)
    document = describe(model, fed)
    assert document["sizes"]["rows"] == model.cluster_sizes_.tolist()
    assert document["sizes"]["total"] == 200
    opened = {one.partition.digest: one.opened for one in fed.opening_record.earlier}
    about = [one.ask.message for one in recording.opened_sums[asked:]]
    named = [
        opened[message.partitions[at].digest][cell]
        for message in about
        if isinstance(message, DescribedCells)
        for at, cell in zip(message.partition_of, message.cell_of, strict=True)
    ]
    assert len(named) == 6  # two questions about three clusters
    assert all(named)
    assert not any(hasattr(message, "centers") for message in about if not isinstance(message, DescribedCells))


def test_the_description_of_opened_cells_is_that_of_their_rows():
    """Computed here from the rows that were nearest to the centres when each sum was opened last."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(240, 2)) + 3 * rng.integers(2, size=(240, 1))
    fed = fc.Federation.local(split(X, 2, rng))
    model = fit(fed, 3, init="box", floor=10)
    document = describe(model, fed)
    own = []
    for number, cell in enumerate(model.opened_cells_):
        centers = cell.partition.arrays["centers"]
        labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        own.append(X[labels == number])
    means = np.array([rows.mean(axis=0) for rows in own])
    assert means == pytest.approx(model.cluster_centers_, rel=1e-12)
    spread = [np.sqrt(((rows - mean) ** 2).sum(axis=1)).mean() for rows, mean in zip(own, means, strict=True)]
    apart = np.sqrt(((means[:, None] - means) ** 2).sum(axis=2)) + np.diag([np.inf] * 3)
    ratios = (np.array(spread)[:, None] + spread) / apart
    within = sum(((rows - mean) ** 2).sum() for rows, mean in zip(own, means, strict=True))
    every, sizes = np.concatenate(own), np.array([len(rows) for rows in own])
    d = np.sort(np.sqrt(((every[:, None] - means) ** 2).sum(axis=2)), axis=1)
    between = (sizes[:, None] * (means - every.mean(axis=0)) ** 2).sum()
    found = {name: facts["value"] for name, facts in document["indices"].items()}
    assert found["davies-bouldin"] == pytest.approx(ratios.max(axis=1).mean(), rel=1e-9)
    assert found["calinski-harabasz"] == pytest.approx(between / 2 / (within / (len(every) - 3)), rel=1e-9)
    assert found["simplified-silhouette"] == pytest.approx((1 - d[:, 0] / d[:, 1]).mean(), rel=1e-9)
    assert model.inertia_ == pytest.approx(within, rel=1e-9)
    axes = np.array(document["map"]["axes"])
    for rows, covariance in zip(own, document["map"]["covariances"], strict=True):
        seen = rows @ axes.T
        assert np.cov(seen.T, bias=True) == pytest.approx(np.array(covariance), rel=1e-9, abs=1e-12)
    counts = np.array(list(document["composition"]["sites"].values()))
    assert counts.sum(axis=0).tolist() == document["sizes"]["rows"] == sizes.tolist()


def test_a_site_describes_no_cell_that_it_has_not_opened():
    X = np.random.default_rng(2).normal(size=(90, 2))
    fed = fc.Federation.local(split(X, 3, np.random.default_rng(1)))
    model = fit(fed, 3, init="box", floor=8)
    model.opened_cells_ = [replace(model.opened_cells_[0], cell=one) for one in range(3)]
    other = nearest_partition(model.opened_cells_[0].partition.view, model.scaled_centers_ + 0.5)
    model.opened_cells_[2] = replace(model.opened_cells_[2], partition=other)
    with pytest.raises(fc.QuorumLost, match="cells that have been opened before"):
        describe(model, fed)


def test_a_cluster_without_opened_sums_is_described_as_not_known():
    X = np.concatenate([np.random.default_rng(0).normal(size=(60, 1)) + at for at in (0, 20)])
    fed = fc.Federation.local({"a": np.concatenate([X, [[90.0]]])})
    document = describe(fit(fed, 3, init=[[0.0], [20.0], [90.0]], floor=10), fed)
    assert document["sizes"]["rows"].count(None) >= 1
    assert document["map"]["means"].count(None) == document["sizes"]["rows"].count(None)
    assert "never opened" in document["indices"]["absent"]


def test_without_any_opened_cell_the_clusters_are_not_described():
    fed = fc.Federation.local({"a": rows(0, 0, 1, 1, 2, 50, 51)})
    document = describe(fit(fed, 2, init=[[0.0], [50.0]]), fed)
    assert "The sums of no cluster were opened" in document["sizes"]["absent"]


def test_the_objective_is_known_only_where_all_clusters_were_opened():
    # As in the first test: both clusters are opened in round 1, and both stay closed in round 2.
    model = fit(rows(0, 1, 2, 4.75, 5.25, 10, 10, 10), init=[[0.0], [10.0]])
    first = sum(x * x for x in (0, 1, 2, 4.75)) + 4.75**2
    assert [entry["objective"] for entry in model.history_] == [pytest.approx(first), None]


# --- A choice of K ---------------------------------------------------------------------------------------------------


def test_the_cells_of_a_choice_are_recorded_and_nothing_that_a_study_opens_shows_a_row():
    """Three near groups in 379 rows: without a comparison with the cells of the choice, one row could be computed."""
    rng = np.random.default_rng(23)
    rng.integers(300, 2500), rng.integers(2, 7), rng.integers(2, 6), rng.integers(3, 6)
    places = rng.normal(size=(5, 3)) * rng.uniform(1.5, 3.5)
    X = places[rng.integers(5, size=379)] + rng.normal(size=(379, 3))
    fed = fc.Federation.local(split(X, 3, rng), aggregation="secure")
    listened = listen_to_sums(fed)
    found = fc.select_k(fc.KMeans(scale="standardise", random_state=23, opening="floored"), fed)
    document = describe(found.model, fed, found)
    assert None not in document["sizes"]["rows"]
    assert not listened.opened.recovered_rows(X).any()
    blocks = [block for own in fed.site_data.values() for block in own.source.blocks()]
    named = {
        partition_name(one.partition.arrays): one.partition
        for one in fed.opening_record.earlier
        if one.partition.kind in {"choice", "components"} and not one.partition.has_groups
    }
    assert len(named) >= 3
    assert "components" in {partition.kind for partition in named.values()}
    for ask, answer in listened.opened.groups:
        partition = named[partition_name(vars(ask.sets[0] if isinstance(ask, ComponentSumsQuestion) else ask))]
        labels = np.concatenate([partition.label_block(block) for block in blocks])
        counts = np.bincount(labels, minlength=partition.cells)
        assert counts[ask.asked].tolist() == answer.rows.to_floats().tolist()


def partition_name(fields):
    """The number of cuts of a tree of cells, or where components are."""
    return len(fields["levels"]) if "levels" in fields else fields["offsets"].tobytes()


def test_a_search_by_an_index_asks_only_about_cells_that_were_opened():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 2)) + 6 * rng.integers(3, size=(240, 1))
    fed = fc.Federation.local(split(X, 3, rng), aggregation="secure")
    recording = record_federation(fed)
    how = {"opening": "floored", "random_state": 0}
    found = fc.select_k(fc.KMeans(**how), fed, [2, 3], index="davies-bouldin", restarts=2)
    assert found.k == 3
    names = {one.ask.handler.name for one in recording.opened_sums}
    assert "described_cells.cell_distances" in names
    assert not names & {"cluster_indices.label_sums", "cluster_indices.index_sums", "row_split.moments"}


# --- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opening": "half"}, "choose one of exact, floored"),
        ({"floor": 0}, "whole number from 1"),
        ({"missing": "partial"}, "missing"),
        ({"participation": 0.5}, "participation"),
        ({"singletons": "paper"}, "singletons"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, said):
    with pytest.raises((StudyError, ValueError), match=said):
        fit(rows(*range(20)), init="box", **options)


def test_an_update_with_new_rows_needs_exact_sums():
    model = fit(rows(*range(20)), init="box")
    with pytest.raises((StudyError, ValueError), match="opening"):
        model.partial_fit(rows(*range(20)))


def test_clusters_that_stay_closed_have_the_sizes_of_the_cells_they_come_from():
    """Eleven columns, five far groups: the cells of the start nearly equal the clusters, which then may not open."""
    rng = np.random.default_rng(0)
    places = rng.normal(size=(5, 11)) * 3
    X = places[rng.integers(5, size=700)] + rng.normal(size=(700, 11))
    exact = fc.KMeans(5).fit(X)
    model = fc.KMeans(5, opening="floored", floor=10).fit(X)
    counts = np.bincount(model.labels_, minlength=5)
    assert (model.cluster_sizes_ > 0).all()
    assert np.abs(model.cluster_sizes_ - counts).max() <= 0.1 * counts.max()
    inertia = ((X - model.cluster_centers_[model.labels_]) ** 2).sum()  # the model's own is over the rows it counts
    assert exact.inertia_ * (1 - 1e-12) <= inertia <= 1.05 * exact.inertia_
    assert model.inertia_ == pytest.approx(inertia, rel=0.05)
    assert adjusted_rand_score(exact.labels_, model.labels_) > 0.95
