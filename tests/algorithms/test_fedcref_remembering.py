"""First clusters as evidence: heard where their faults are chance, not where rows that are alike share them."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms import fedcref_refining as refining


def two_blobs(rng, rows=300, apart=3.0):
    """Rows of two kinds on a line that overlap, and what two models that know the kinds would err on them."""
    truth = np.repeat([0, 1], rows // 2)
    x = rng.normal(size=rows) + apart * truth
    errors = np.exp(np.stack([(x - 0.0) ** 2, (x - apart) ** 2]) / 20)
    return x[:, None], truth, errors


def right(found, truth):
    return refining.agreement(truth, found)


def test_faults_of_chance_are_mended_better_with_first_clusters_than_without():
    gains = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, truth, errors = two_blobs(rng)
        first = np.where(rng.random(len(truth)) < 0.2, 1 - truth, truth)
        gains.append(right(refining.remembering(errors, first, rows), truth) - right(errors.argmin(axis=0), truth))
    assert np.mean(gains) > 0.01
    assert np.mean(np.array(gains) >= 0) >= 0.9


def test_clusters_that_were_right_at_first_stay_so():
    rows, truth, errors = two_blobs(np.random.default_rng(0))
    assert right(errors.argmin(axis=0), truth) < 0.95
    assert right(refining.remembering(errors, truth, rows), truth) > 0.98


def test_first_clusters_that_say_nothing_cost_next_to_nothing():
    losses = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, truth, errors = two_blobs(rng)
        found = refining.remembering(errors, rng.integers(0, 2, len(rows)), rows)
        losses.append(right(errors.argmin(axis=0), truth) - right(found, truth))
    assert np.mean(losses) < 0.005


def test_faults_that_neighbours_share_are_not_believed():
    """A third of one kind, all on one side, began with the other, as a clustering would have it."""
    rng = np.random.default_rng(2)
    rows, truth, errors = two_blobs(rng, apart=6.0)
    first = np.where((truth == 1) & (rows[:, 0] < np.quantile(rows[truth == 1], 1 / 3)), 0, truth)
    assert right(first, truth) < 0.84
    assert refining.echo(rows, truth, first) > 0.9
    assert right(refining.remembering(errors, first, rows), truth) > 0.99


@pytest.mark.parametrize("distinct", [1, 9])
def test_rows_that_are_the_same_are_no_witnesses_against_chance(distinct):
    """Of many rows in one place none is the neighbour of all others."""
    heard = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, distinct, 300)[:, None].astype(float)
        heard.append(refining.echo(rows, np.zeros(300, int), (rng.random(300) < 0.2).astype(int)))
    assert np.mean(heard) < 0.03


def test_labels_of_first_clusters_are_names_only():
    rng = np.random.default_rng(3)
    rows, truth, errors = two_blobs(rng)
    first = np.where(rng.random(len(truth)) < 0.3, 1 - truth, truth)
    assert np.array_equal(refining.remembering(errors, first, rows), refining.remembering(errors, 1 - first, rows))


def test_the_sweeps_do_what_their_formula_says():
    """The same in loops over rows, picks and values of t."""
    rng = np.random.default_rng(4)
    errors, first, rows = rng.uniform(0.5, 2.0, (3, 40)), rng.integers(0, 4, 40), rng.normal(size=(40, 5))
    alone = errors.argmin(axis=0)
    clear = refining.sure(errors, alone, refining.CLEAR)
    weight = 1 - refining.echo(rows[clear], alone[clear], first[clear])
    share = [[float(alone[row] == pick) for pick in range(3)] for row in range(40)]
    for _ in range(refining.SWEEPS):
        table = [[1.0] * 3 for _ in range(4)]
        for row in range(40):
            for pick in range(3):
                table[first[row]][pick] += share[row][pick]
        sums = [sum(table[began][pick] for began in range(4)) for pick in range(3)]
        best = (-np.inf, None)
        for steep in refining.STEEP:
            likely, shares = 0.0, []
            for row in range(40):
                by_error = [errors[pick, row] ** -steep for pick in range(3)]
                both = [
                    by_error[pick] / sum(by_error) * (table[first[row]][pick] / sums[pick]) ** weight
                    for pick in range(3)
                ]
                likely += np.log(sum(both))
                shares.append([one / sum(both) for one in both])
            best = max(best, (likely, shares), key=lambda own: own[0])
        share = best[1]
    expected = np.array(share).argmax(axis=1)
    assert len(np.unique(expected)) == 3
    assert np.array_equal(refining.remembering(errors, first, rows), expected)


def test_rows_all_alike_and_single_picks_have_a_result():
    rows, first = np.zeros((6, 2)), np.array([0, 0, 1, 1, 0, 1])
    assert refining.remembering(np.ones((1, 6)), first, rows).tolist() == [0] * 6
    found = refining.remembering(np.zeros((2, 6)), first, rows)
    assert set(found.tolist()) <= {0, 1}
    assert refining.echo(rows[:0], first[:0], first[:0]) == 0.0
    assert refining.echo(rows[:2], first[:2], first[:2]) == 0.0


@pytest.mark.parametrize("remember", [True, False])
def test_a_run_heeds_the_first_clusters_only_if_asked(monkeypatch, remember):
    """And never in its first iteration, whose models learnt nothing but those clusters."""
    pytest.importorskip("torch")
    heard = []
    monkeypatch.setattr(refining, "remembering", lambda _, first, rows: heard.append(len(rows)) or first)
    rng = np.random.default_rng(5)
    kinds = rng.random((3, 12))
    labels = np.repeat([0, 1], 20)
    held = {"a": (0, 1), "b": (1, 2), "c": (2, 0)}
    data = {
        name: np.clip(kinds[np.array(own)[labels]] + rng.normal(size=(40, 12)) / 20, 0, 1) for name, own in held.items()
    }
    fc.FedCRef(
        start=dict.fromkeys(held, labels), bounds=(0, 1), rate=3e-3, epochs=5, rounds=2, closing=1, closing_epochs=2,
        max_iterations=1, remember=remember,
    ).fit(fc.Federation.local(data))  # fmt: skip
    assert heard == ([40, 40, 40] if remember else [])
