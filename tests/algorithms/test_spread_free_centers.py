"""Initial centres from sums: cells computed by hand, arithmetic against numpy.linalg, floors, samples, hard tables."""

import numpy as np
import pytest

import fedclust as fc
from fedclust import kernels
from fedclust.algorithms.shared import candidate_choice, cell_cuts, cell_routing, cell_sums, cell_tree, fixed_order
from fedclust.algorithms.shared.spread_free_centers import CROSSING_ROUNDS, MAX_START_ASKS
from fedclust.core.errors import StudyError
from fedclust.core.ring import Exact
from fedclust.kernels import row_sample


def sites(X, seed=0, parties=5):
    rows = np.random.default_rng(seed).permutation(len(X))
    return {f"p{i}": X[own] for i, own in enumerate(np.array_split(rows, parties))}


def groups(rows=300, width=3, count=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) + 6 * rng.normal(size=(count, width))[rng.integers(count, size=rows)]


class Recorder:
    """Passes every exchange on, and keeps the questions with the totals of their answers."""

    def __init__(self, fed):
        self.engine, self.parties, self.asked = fed.engine, fed.engine.parties, []

    def exchange(self, calls, *, timeout, quorum):
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        call = next(iter(calls.values()))
        parts = [reply.release for reply in replies.values()]
        self.asked.append((call.handler, call.message, type(parts[0]).total(parts) if call.want == "total" else None))
        return replies


def recorded(model, fed):
    engine = Recorder(fed)
    fed.use_engine(engine)
    return model.fit(fed), [own for own in engine.asked if own[0].startswith("cell_sums.")]


def test_a_tree_of_one_column_by_hand():
    # Mean 5, so x - 5 = -5, -4, 4, 5. Two clusters: six cells are wanted. The first cut asks for four slices, but the
    # standard deviation is sqrt(20.5) = 4.53 and the planes lie at -4.07, 0 and 4.07: each slice holds one row.
    model, asked = recorded(fc.KMeans(2, max_iter=1), fc.Federation.local({"a": [[0.0], [1.0]], "b": [[9.0], [10.0]]}))
    names = [name.partition(".")[2] for name, _, _ in asked]
    assert names == ["scatter_sums", "part_moments"]
    _, question, answer = asked[0]
    assert question.mean.tolist() == [5.0]
    assert answer.products.to_floats().tolist() == [82.0]  # 25 + 16 + 16 + 25
    _, question, answer = asked[1]
    assert question.kinds.tolist() == [cell_routing.SLICES]
    assert question.widths.tolist() == [0.9 * 20.5**0.5]
    assert answer.counts.to_floats().tolist() == [1, 1, 1, 1]
    assert sorted(np.abs(answer.sums.to_floats().ravel()).tolist()) == [4, 4, 5, 5]
    assert sorted(model.initial_centers_.ravel().tolist()) == [0.5, 9.5]
    assert model.history_[0]["objective"] == 1.0  # {0, 1} and {9, 10}: four rows at .5 from their centres


def test_a_row_on_a_plane_goes_to_the_lower_side():
    z = np.array([[-1.0, 0.0, 1.0]])
    first = np.array([[1.0], [0.0]])
    assert cell_routing.part_of_rows(z, cell_routing.HALVES, np.zeros(1), first, 0.0).tolist() == [0, 0, 1]
    assert cell_routing.part_of_rows(z, cell_routing.SLICES, np.zeros(1), first, 1.0).tolist() == [0, 1, 2]
    axes = np.eye(2)
    z = np.array([[-1.0, -1, 0, 2, 2], [-1.0, 1, 0, -1, 1]])
    assert cell_routing.part_of_rows(z, cell_routing.QUARTERS, np.zeros(2), axes, 0.0).tolist() == [0, 1, 0, 2, 3]


def test_parts_of_a_cell_add_up_to_it():
    _, asked = recorded(fc.KMeans(5, max_iter=1), fc.Federation.local(sites(groups(width=9))))
    first, *others = [answer for name, _, answer in asked if name.startswith("cell_sums.part_")]
    assert first.counts.to_floats().sum() == 300
    assert all(answer.counts.to_floats().sum() < 300 for answer in others)
    assert asked[-2][2].counts.to_floats().sum() == 300
    assert np.allclose(asked[-2][2].sums.to_floats().sum(axis=0), groups(width=9).sum(axis=0))


@pytest.mark.parametrize("width", [1, 2, 5, 12])
def test_principal_axes_are_those_of_lapack(width):
    rng = np.random.default_rng(width)
    roots = rng.normal(size=(20, width, width + 3))
    matrices = roots @ roots.transpose(0, 2, 1)
    values, vectors = fixed_order.principal_axes(matrices, min(3, width))
    expected = np.linalg.eigvalsh(matrices)[:, ::-1][:, : min(3, width)]
    # Axes of nearly equal variance may mix, so the variances agree to a few digits and the equations exactly.
    assert np.allclose(values, expected, rtol=1e-3)
    gram = vectors.transpose(0, 2, 1) @ vectors
    assert np.allclose(gram, np.eye(gram.shape[1]), atol=1e-6)


def test_an_orthonormal_basis_spans_the_same_as_a_qr():
    A = np.random.default_rng(0).normal(size=(7, 4))
    A[:, 2] = A[:, 0] - A[:, 1]
    basis = fixed_order.orthonormal_basis(A)
    assert basis.shape == (7, 3)
    assert np.allclose(basis.T @ basis, np.eye(3), atol=1e-12)
    q, _ = np.linalg.qr(A[:, [0, 1, 3]])
    assert np.allclose(basis @ basis.T, q @ q.T, atol=1e-12)


def test_plain_arithmetic_agrees_with_numpy():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    assert np.allclose(fixed_order.matrix_product(a, b), a @ b, rtol=1e-14)
    whole = rng.normal(size=(5, 5))
    whole = whole + whole.T
    pairs = np.triu_indices(5)
    both = np.stack([whole, 2 * whole])
    assert (fixed_order.symmetric_matrices(both[:, *pairs], pairs, 5) == both).all()


def test_candidates_are_the_best_of_many_restarts():
    rng = np.random.default_rng(2)
    points, weights = rng.normal(size=(14, 30)), rng.integers(1, 50, 14).astype(float)

    def candidates():
        search = candidate_choice.CandidateSearch(points, weights, 3, np.random.default_rng(0))
        return [search.centers(own) for own in search.restart(20)]

    found = candidates()

    def objective(centers):
        return (weights * ((points[:, None] - centers) ** 2).sum(axis=2).min(axis=1)).sum()

    values = [objective(centers) for centers in found]
    assert values == sorted(values) or np.allclose(values, sorted(values), rtol=1e-12)
    from sklearn.cluster import KMeans

    assert values[0] <= KMeans(3, n_init=50, random_state=0).fit(points, sample_weight=weights).inertia_ * (1 + 1e-9)
    assert all((a == b).all() for a, b in zip(found, candidates(), strict=True))


def test_a_crossing_joins_what_is_best_of_two_candidates():
    # Four pairs of points, of which each parent has split one and joined two; one is wrong below 5, the other above.
    points, weights = np.array([[0.0], [1.0], [3.0], [4.0], [10.0], [11.0], [13.0], [14.0]]), np.ones(8)
    wrong_below, wrong_above = (0, 0, 0, 0, 1, 1, 2, 3), (0, 0, 1, 2, 3, 3, 3, 3)
    search = candidate_choice.CandidateSearch(points, weights, 4, np.random.default_rng(1))
    children = search.cross([wrong_below, wrong_above], 40)
    assert (0, 0, 1, 1, 2, 2, 3, 3) in children
    assert len(set(children)) == len(children)
    assert not set(search.cross([wrong_below, wrong_above], 40)) & set(children)
    assert search.cross([wrong_below], 5) == []


def test_crossings_begin_no_worse_than_the_candidates_that_are_crossed():
    X = groups(900, 2, 3, seed=4)
    ends = {}
    for n_init in ("auto", 20):
        fed = fc.Federation.local(sites(X))
        model, asked = recorded(fc.KMeans(20, n_init=n_init, max_iter=1), fed)
        compared = [answer.objectives.to_floats() for name, _, answer in asked if name == "cell_sums.objectives"]
        assert model.history_[0]["objective"] == pytest.approx(min(own.min() for own in compared), rel=1e-9)
        ends[n_init] = model.history_[0]["objective"]
        assert len(compared) == (1 + CROSSING_ROUNDS if n_init == "auto" else 1)
    assert ends["auto"] < ends[20]


@pytest.mark.parametrize("floor", [2, 8, 20])
def test_no_sum_is_opened_of_fewer_rows_than_the_floor(floor):
    for seed in range(6):
        fed = fc.Federation.local(sites(groups(rows=150 + 40 * seed, seed=seed), seed))
        fed.cell_floor = floor
        _, asked = recorded(fc.KMeans(2 + seed, max_iter=1), fed)
        whole = 150 + 40 * seed
        cells = {(): float(whole)}
        for name, question, answer in asked:
            if name in {"cell_sums.part_moments", "cell_sums.part_sums"}:
                counts = answer.counts.to_floats()
                assert counts[counts > 0].min() >= floor  # a part without rows shows none
                assert _rest_of_cells(question, counts, cells) >= floor
            if name == "cell_sums.nearest_sums":
                assert answer.counts.to_floats().min() >= floor


def _rest_of_cells(question, counts, cells):
    """The fewest rows in a part that was not asked for and has any; the rows of all parts are added to `cells`."""
    sizes = dict(zip(question.asked.tolist(), counts.tolist(), strict=True))
    fewest = np.inf
    for cell, children in zip(question.cells.tolist(), question.children.tolist(), strict=True):
        own = [child for child in children if child > 0]
        if own[0] not in sizes:
            continue
        parent = cells[_place(question, cell)] if cell else cells[()]
        rest = parent - sum(sizes[child] for child in own if child in sizes)
        sizes = {**sizes, own[-1]: sizes.get(own[-1], rest)}
        for child in own:
            cells[_place(question, child)] = sizes[child]
        fewest = min(fewest, rest if rest > 0 and own[-1] not in question.asked.tolist() else fewest)
    return fewest


def _place(question, cell):
    """Where a cell lies: the cuts on the way to it, which number cells in the same way in every question."""
    for number, children in enumerate(question.children.tolist()):
        if cell in children:
            above = int(question.cells[number])
            cut = question.places[number].tobytes()
            return (*(_place(question, above) if above else ()), (cut, children.index(cell)))
    return ()


def test_the_number_of_questions_of_a_padded_start_does_not_depend_on_the_rows():
    counts = set()
    for X in (groups(), groups(60, 3, 2), np.repeat([[1.0, 2.0, 3.0]], 50, axis=0)):
        fed = fc.Federation.local(sites(X, parties=3), aggregation="blind")
        fc.KMeans(3, max_iter=2).fit(fed)
        counts.add(tuple(own["messages"] for own in fed.traffic().values()))
    assert len(counts) == 1
    assert MAX_START_ASKS < 40


@pytest.mark.parametrize(("width", "k"), [(25, 6), (3, 9), (15, 2), (2, 12)])
def test_padding_hides_what_the_messages_hold(width, k):
    sent = set()
    for X in (groups(150, width, 9), np.repeat(groups(3, width), 50, axis=0)):
        fed = fc.Federation.local(sites(X, parties=3), aggregation="blind")
        fc.KMeans(k, max_iter=1).fit(fed)
        sent.add(str(fed.traffic()))
    assert len(sent) == 1


def test_a_large_table_is_sampled_by_the_rows_values_alone(monkeypatch):
    monkeypatch.setattr(row_sample, "SAMPLE_ROWS", 200)
    X = groups(3000, 4, 5)
    pooled, asked = recorded(fc.KMeans(5, max_iter=3), fc.Federation.local({"all": X}))
    rows = int(asked[0][2].rows.to_floats())
    assert 150 < rows < 260
    spread = fc.KMeans(5, max_iter=3).fit(fc.Federation.local(sites(X, parties=40), wire=True))
    assert (spread.initial_centers_ == pooled.initial_centers_).all()
    kept = row_sample.in_sample(np.ascontiguousarray(X.T), 0, row_sample.sample_share(3000))
    assert kept.sum() == rows
    # Minus zero is zero, and a single-precision value is the same value in double precision.
    same = np.array([[0.0, -0.0], [1.5, 1.5]])
    assert len(set(row_sample.in_sample(same, 3, 1 << 31).tolist())) == 1


def test_a_sample_without_rows_is_replaced_by_the_whole_table(monkeypatch):
    monkeypatch.setattr(row_sample, "SAMPLE_ROWS", 50)
    X = np.repeat([[0.0, 1.0], [5.0, 5.0], [9.0, 0.0]], 400, axis=0)
    model = fc.KMeans(3).fit(fc.Federation.local(sites(X)))
    assert model.inertia_ == 0.0
    assert sorted(model.cluster_centers_.tolist()) == [[0.0, 1.0], [5.0, 5.0], [9.0, 0.0]]


HARD = {
    "one cluster": (groups(), 1),
    "barely enough rows": (groups(9, 2, 3), 8),
    "as many clusters as rows": (groups(6, 2, 3), 6),
    "all rows equal": (np.full((40, 3), 7.25), 3),
    "duplicates": (np.repeat(groups(12, 2), 20, axis=0), 5),
    "a constant column": (np.column_stack([groups(90, 2), np.full(90, 0.1)]), 4),
    "zeros and ones": (np.random.default_rng(3).integers(0, 2, (200, 6)).astype(float), 5),
    "wide": (groups(80, 60, 4), 4),
    "single precision": (groups().astype(np.float32), 4),
    "a large offset": (groups() + 1e9, 4),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_tables_start_alike_at_one_site_and_at_many(name):
    X, k = HARD[name]
    pooled = fc.KMeans(k).fit(X)
    with kernels.use_backend("numpy"):
        spread = fc.KMeans(k).fit(fc.Federation.local(sites(X, parties=min(5, len(X)))))
    assert (pooled.initial_centers_ == spread.initial_centers_).all()
    assert (pooled.cluster_centers_ == spread.cluster_centers_).all()
    assert np.isfinite(pooled.cluster_centers_).all()


@pytest.mark.parametrize("far", [1e6, 1e9])
def test_an_outlier_does_not_keep_the_other_groups_from_being_found(far):
    X = groups(400, 3, 4)
    X[0] = far
    model = fc.KMeans(5).fit(X)
    assert model.inertia_ < 1.02 * fc.KMeans(4).fit(X[1:]).inertia_


def test_missing_values_count_as_the_mean_of_their_column():
    X = groups(240, 3, 4)
    X[::7, 1] = np.nan
    pooled, asked = recorded(fc.KMeans(4, missing="partial", max_iter=2), fc.Federation.local({"all": X}))
    y = np.nan_to_num(X - np.nanmean(X, axis=0))
    found = asked[0][2].products.to_floats()
    assert np.allclose(found, (y.T @ y)[np.triu_indices(3)], rtol=1e-12)
    spread = fc.KMeans(4, missing="partial", max_iter=2).fit(fc.Federation.local(sites(X)))
    assert (spread.cluster_centers_ == pooled.cluster_centers_).all()


def test_streamed_rows_start_as_rows_in_memory(tmp_path):
    import pandas as pd

    X = pd.DataFrame(groups(), columns=["a", "b", "c"])
    X.iloc[:120].to_parquet(tmp_path / "one.parquet")
    X.iloc[120:].to_parquet(tmp_path / "two.parquet")
    spread = fc.KMeans(4).fit(fc.Federation.local({"x": tmp_path / "one.parquet", "y": tmp_path / "two.parquet"}))
    assert (spread.cluster_centers_ == fc.KMeans(4).fit(X).cluster_centers_).all()


@pytest.mark.parametrize(("init", "n_init"), [("random", 1), ("random", 7), ("box", 5), ("k-means++", 1)])
def test_several_draws_are_compared_over_all_rows(init, n_init):
    X = groups()
    pooled = fc.KMeans(4, init=init, n_init=n_init, max_iter=2).fit(X)
    spread = fc.KMeans(4, init=init, n_init=n_init, max_iter=2).fit(fc.Federation.local(sites(X)))
    assert (pooled.cluster_centers_ == spread.cluster_centers_).all()
    if n_init > 1:
        one = fc.KMeans(4, init=init, max_iter=2).fit(X)
        assert pooled.history_[0]["objective"] <= one.history_[0]["objective"]


def test_more_candidates_are_refused_where_there_is_one():
    X = groups()
    for init in ("careful", "party", X[:4]):
        with pytest.raises(StudyError, match="set n_init to 'auto'"):
            fc.KMeans(4, init=init, n_init=3).fit(X)
    for n_init in (0, 1.5, "many", True):
        with pytest.raises(StudyError, match="n_init is"):
            fc.KMeans(4, n_init=n_init).fit(X)
    halves = fc.Federation.local({"a": X[:, :1], "b": X[:, 1:]}, split="columns", columns={"a": ["x"], "b": ["y", "z"]})
    for options in ({"init": "box", "n_init": 2}, {"init": "careful"}, {"init": "random"}):
        with pytest.raises(StudyError):
            fc.KMeans(4, **options).fit(halves)


def test_starts_that_depend_on_the_spread_say_so():
    fed = fc.Federation.local(sites(groups()))
    for init in ("careful", "party"):
        assert any("depend on how the rows are spread" in note for note in fc.KMeans(4, init=init).fit(fed).notes_)
    for init in ("k-means++", "random", "box"):
        assert not any("spread" in note for note in fc.KMeans(4, init=init).fit(fed).notes_)


def test_the_last_part_is_exact_beside_a_far_row():
    def sums(*values):
        return sum(
            (Exact.from_floats([value], unit=-60) for value in values[1:]), Exact.from_floats(values[:1], unit=-60)
        )

    def part(*values):
        return cell_cuts.PartSums(len(values), sums(*values), sums(*(value * value for value in values)))

    rest = cell_cuts.last_part(part(1e9, -(2.0**-50)), [part(1e9)])
    assert rest.rows == 1
    assert rest.sums.to_floats().tolist() == [-(2.0**-50)]


def test_a_cell_is_cut_where_its_inertia_is_largest():
    cells = [
        cell_cuts.Cell((j,), 50.0, np.zeros(2), 50 * np.array([width, 0.0, 1.0]))
        for j, width in enumerate((1.0, 9.0, 2.0))
    ]
    cell_cuts.measure_cells(cells)
    plan, is_last = cell_cuts.plan_cuts(cells, wanted=5, most=5, floor=1)
    assert [cell.path for cell, _ in plan] == [(1,)]
    assert plan[0][1].kind == cell_routing.HALVES  # room for two more cells only
    assert not is_last
    assert cell_tree.wanted_cells(4) == 11


def test_many_clusters_have_more_cells_each_up_to_a_hundred():
    wanted = [cell_tree.wanted_cells(k) for k in (1, 2, 5, 10, 16, 20, 30, 40, 60)]
    assert wanted == [3, 6, 13, 26, 52, 81, 101, 101, 151]
    assert [cell_tree.wanted_cells(k, decided=True) for k in (2, 10, 20, 40)] == [6, 26, 51, 101]


def test_products_that_are_not_asked_for_count_as_those_of_independent_coordinates():
    rows = np.random.default_rng(5).normal(size=(40, 5)) @ np.random.default_rng(6).normal(size=(5, 5))
    i, j = cell_sums.product_pairs(5)
    cell = cell_cuts.Cell((), 40.0, rows.sum(axis=0), (rows.T @ rows)[i, j])
    cell_cuts.measure_cells([cell])
    expected = np.cov(rows.T, bias=True)
    expected[:, 3:] = expected[3:] = 0.0
    expected[[3, 4], [3, 4]] = rows[:, 3:].var(axis=0)
    assert cell.inertia == pytest.approx(40 * np.trace(expected))
    assert cell.variances[0] == pytest.approx(np.linalg.eigvalsh(expected)[-1])


def test_few_far_rows_get_cells_of_their_own():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(500, 4))
        X[:3] = 60 * np.eye(4)[:3] + rng.normal(size=(3, 4))
        model = fc.KMeans(4, random_state=seed).fit(fc.Federation.local(sites(X, seed)))
        assert sorted(model.cluster_sizes_) == [1, 1, 1, 497]


def test_two_far_points_share_a_cluster_that_kmeans_alone_would_not_find():
    points, weights = np.array([[0.0, 0.0], [140.0, 0.0], [-50.0, 120.0], [20.0, 118.0]]), np.array([1000.0, 1, 1, 1])
    search = candidate_choice.CandidateSearch(points, weights, 3, np.random.default_rng(0))
    assert search.restart(count=1) == [(0, 1, 2, 2)]
