"""What a floored fit says of its clusters: far rows, equal rows, few distinct rows, and too many clusters."""

import json

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.analysis import describe

FLOOR = 10


def far_rows(rng):
    X = rng.normal(size=(600, 3))
    X[:5] *= 200
    return X


def equal_rows(rng):
    return rng.normal(size=(60, 3))[rng.integers(60, size=300)]


def few_distinct_rows(rng):
    return (np.arange(200) % 3.0)[:, None] + np.zeros((200, int(rng.integers(1, 3))))


def few_rows(rng):
    return rng.normal(size=(15, 2))


def heavy_tails(rng):
    return rng.standard_t(1.5, size=(300, 4))


TABLES = (far_rows, equal_rows, few_distinct_rows, few_rows, heavy_tails)


def refuse_constant(name):
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("k", [3, 7, 10])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_centres_are_finite_and_sizes_are_known_or_left_out_and_no_row_counts_often(table, k, tmp_path):
    X = table(np.random.default_rng(3))
    fed = fc.Federation.local({f"s{i}": part for i, part in enumerate(np.array_split(X, 3))}, aggregation="secure")
    fed.cell_floor = FLOOR
    model = fc.KMeans(k, opening="floored", floor=FLOOR, scale="standardise", random_state=0).fit(fed)
    assert np.isfinite(model.cluster_centers_).all()
    known = np.array([cell is not None for cell in model.opened_cells_])
    assert np.isfinite(model.inertia_) == known.all()
    assert not model.cluster_sizes_[~known].any()
    assert model.cluster_sizes_.sum() <= len(X) + (FLOOR - 1) * k
    document = describe(model, fed)
    sizes = document["sizes"].get("rows", [None] * k)
    assert [size is not None for size in sizes] == known.tolist()
    saved = model.save(tmp_path / "model.json")
    json.loads(saved.read_text(), parse_constant=refuse_constant)
    again = fc.load(saved)
    assert again.inertia_ == model.inertia_
    assert (again.cluster_centers_ == model.cluster_centers_).all()


def test_each_known_cluster_is_described_by_the_mean_and_the_size_of_its_cell():
    X = far_rows(np.random.default_rng(5))
    fed = fc.Federation.local({"a": X})
    model = fc.KMeans(6, opening="floored", floor=FLOOR, random_state=1).fit(fed)
    for number, cell in enumerate(model.opened_cells_):
        if cell is None:
            continue
        rows = X[cell.partition.label_block(cell.partition.view.transform(np.ascontiguousarray(X.T))) == cell.cell]
        assert len(rows) == model.cluster_sizes_[number]
        assert rows.mean(axis=0) == pytest.approx(model.cluster_centers_[number], rel=1e-9)
