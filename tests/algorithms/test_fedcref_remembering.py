"""First clusters as evidence: heard where their faults are chance, not where rows that are alike share them."""

import numpy as np
import pytest

import fedclust as fc
from fedclust.algorithms.fedcref import cluster_memory as remembering
from fedclust.algorithms.fedcref import fedcref_site, refining


def two_blobs(rng, rows=300, apart=3.0):
    """Rows of two kinds on a line that overlap, and what two models that know the kinds would err on them."""
    truth = np.repeat([0, 1], rows // 2)
    x = rng.normal(size=rows) + apart * truth
    errors = np.exp(np.stack([(x - 0.0) ** 2, (x - apart) ** 2]) / 20)
    return x[:, None], truth, errors


def heard(errors, first, rows):
    """With all models picked."""
    return remembering.relabel_with_memory(errors, np.arange(len(errors)), first, rows)


def right(found, truth):
    return refining.agreement(truth, found)


def test_faults_of_chance_are_mended_better_with_first_clusters_than_without():
    gains = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, truth, errors = two_blobs(rng)
        first = np.where(rng.random(len(truth)) < 0.2, 1 - truth, truth)
        gains.append(right(heard(errors, first, rows), truth) - right(errors.argmin(axis=0), truth))
    assert np.mean(gains) > 0.01
    assert min(gains) > -0.005  # one row in 300 at most


def test_clusters_that_were_right_at_first_stay_so():
    rows, truth, errors = two_blobs(np.random.default_rng(0))
    assert right(errors.argmin(axis=0), truth) < 0.95
    assert right(heard(errors, truth, rows), truth) > 0.98


def test_first_clusters_that_say_nothing_cost_next_to_nothing():
    losses = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, truth, errors = two_blobs(rng)
        found = heard(errors, rng.integers(0, 2, len(rows)), rows)
        losses.append(right(errors.argmin(axis=0), truth) - right(found, truth))
    assert np.mean(losses) < 0.005


def test_faults_that_neighbours_share_are_not_believed():
    """A third of one kind, all on one side, began with the other, as a clustering would have it."""
    rng = np.random.default_rng(2)
    rows, truth, errors = two_blobs(rng, apart=6.0)
    first = np.where((truth == 1) & (rows[:, 0] < np.quantile(rows[truth == 1], 1 / 3)), 0, truth)
    assert right(first, truth) < 0.84
    assert remembering.neighbor_agreement(rows, truth, first) > 0.9
    assert right(heard(errors, first, rows), truth) > 0.99


@pytest.mark.parametrize("distinct", [1, 9])
def test_rows_that_are_the_same_are_no_witnesses_against_chance(distinct):
    """Of many rows in one place none is the neighbour of all others."""
    echoes = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, distinct, 300)[:, None].astype(float)
        echoes.append(remembering.neighbor_agreement(rows, np.zeros(300, int), (rng.random(300) < 0.2).astype(int)))
    assert np.mean(echoes) < 0.03


def test_labels_of_first_clusters_are_names_only():
    rng = np.random.default_rng(3)
    rows, truth, errors = two_blobs(rng)
    first = np.where(rng.random(len(truth)) < 0.3, 1 - truth, truth)
    assert np.array_equal(heard(errors, first, rows), heard(errors, 1 - first, rows))


def test_the_sweeps_do_what_their_formula_says():
    """The same in loops over rows, picks and values of t."""
    rng = np.random.default_rng(4)
    errors, first, rows = rng.uniform(0.5, 2.0, (3, 40)), rng.integers(0, 4, 40), rng.normal(size=(40, 5))
    alone = errors.argmin(axis=0)
    clear = refining.clear_rows(errors, alone, remembering.CLEAR_FRACTION)
    weight = 1 - remembering.neighbor_agreement(rows[clear], alone[clear], first[clear])
    share = [[float(alone[row] == pick) for pick in range(3)] for row in range(40)]
    for _ in range(remembering.EM_SWEEPS):
        table = [[1.0] * 3 for _ in range(4)]
        for row in range(40):
            for pick in range(3):
                table[first[row]][pick] += share[row][pick]
        sums = [sum(table[began][pick] for began in range(4)) for pick in range(3)]
        best = (-np.inf, None)
        for steep in remembering.STEEPNESS_GRID:
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
    assert np.array_equal(heard(errors, first, rows), expected)


def kinds_and_a_third(rng, rows=600):
    """Two kinds by two models, of which the first is the more able; a third model errs on one kind's rows only."""
    truth = rng.integers(0, 2, rows)
    costs = rng.normal(size=(3, rows)) / 4
    costs[0] -= 0.4
    costs[truth, np.arange(rows)] -= 0.3
    costs[2] += truth
    return truth, np.exp(costs)


TWO = np.array([0, 1])


@pytest.mark.parametrize(("models", "gained"), [(2, 0.04), (3, 0.1)])
def test_how_able_models_are_and_models_that_were_not_picked_count(monkeypatch, models, gained):
    found, without = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth, errors = kinds_and_a_third(rng)
        first = np.where(rng.random(len(truth)) < 0.3, 1 - truth, truth)
        asked = errors[:models], TWO, first, rng.normal(size=(len(truth), 5))
        found.append(right(remembering.relabel_with_memory(*asked), truth))
        with monkeypatch.context() as patched:
            patched.setattr(remembering, "MIN_LIKELIHOOD_GAIN", np.inf)
            without.append(right(remembering.relabel_with_memory(*asked), truth))
    assert np.mean(found) > np.mean(without) + gained


def test_models_are_weighed_as_their_formula_says():
    """The same in loops over rows and picks, with gradients of its own and many small steps."""
    rng = np.random.default_rng(8)
    truth, errors = kinds_and_a_third(rng, 60)
    costs, first = np.log(errors), np.where(rng.random(60) < 0.1, 1 - truth, truth)
    z, share = remembering._standardized_costs(costs), np.full((2, 60), 0.5)
    share[0, truth == 0] += 0.1
    share[1] = 1 - share[0]
    found = remembering._fit_corrections(-2 * costs[:2], z, share, first, 0.9)
    w = [[0.0] * 4, [0.0] * 4]
    for _ in range(remembering.EM_SWEEPS):
        counts = [[1 + sum(share[c, first == f]) for f in (0, 1)] for c in (0, 1)]
        began = [[count / sum(own) for count in own] for own in counts]
        for _ in range(3000):
            slope = [[len(z) * value for value in own] for own in w]
            for row in range(60):
                score = [np.exp(-2 * costs[c, row] + sum(w[c][j] * z[j, row] for j in range(4))) for c in (0, 1)]
                both = [score[c] * began[c][first[row]] ** 0.9 for c in (0, 1)]
                share[:, row] = [both[c] / sum(both) for c in (0, 1)]
                for c in (0, 1):
                    for j in range(4):
                        slope[c][j] -= (share[c, row] - score[c] / sum(score)) * z[j, row]
            w = [[w[c][j] - 0.05 * slope[c][j] for j in range(4)] for c in (0, 1)]
            if max(abs(value) for own in slope for value in own) < 1e-6:
                break
    assert np.abs(found - share).max() < 1e-3
    assert (
        np.abs(found - remembering._fit_corrections(-2 * costs[:2], np.zeros_like(z), share, first, 0.9)).max() > 0.05
    )


@pytest.mark.parametrize("clusters", [2, 8])
def test_nothing_is_learnt_about_models_from_first_clusters_that_say_nothing(monkeypatch, clusters):
    monkeypatch.setattr(remembering, "_fit_corrections", None)  # whoever asks for it fails
    for seed in range(10):
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, clusters, 600)
        errors = np.exp(rng.normal(size=(clusters, 600)) / 4)
        errors[truth, np.arange(600)] /= 2
        rows = rng.normal(size=(600, 5))
        heard(errors, rng.integers(0, clusters, 600), rows)
    with pytest.raises(TypeError):
        heard(errors, truth, rows)


def test_faults_that_rows_alike_to_models_share_teach_nothing(monkeypatch):
    """A third of one kind began with the other: those rows on which a model that was not picked does well."""
    rng = np.random.default_rng(7)
    truth = rng.integers(0, 2, 600)
    third = (truth == 1) & (rng.random(600) < 1 / 3)
    costs = rng.normal(size=(3, 600)) / 4
    costs[truth, np.arange(600)] -= 0.6
    costs[2, third] -= 1.5
    asked = np.exp(costs), TWO, np.where(third, 0, truth), rng.normal(size=(600, 5))
    assert remembering.neighbor_agreement(asked[3], truth, asked[2]) < 0.1  # nothing to be seen in the rows themselves
    kept = right(remembering.relabel_with_memory(*asked), truth)
    assert kept > right(costs[:2].argmin(axis=0), truth)
    monkeypatch.setattr(remembering, "MAX_NEIGHBOR_AGREEMENT", np.inf)
    assert right(remembering.relabel_with_memory(*asked), truth) < kept - 0.1


def test_many_models_that_tell_nothing_do_little_harm():
    losses = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows, truth, errors = two_blobs(rng)
        first = np.where(rng.random(300) < 0.3, 1 - truth, truth)
        more = np.vstack([errors, np.exp(rng.normal(size=(48, 300)))])
        losses.append(
            right(heard(errors, first, rows), truth)
            - right(remembering.relabel_with_memory(more, TWO, first, rows), truth)
        )
    assert np.mean(losses) < 0.02


def test_a_model_that_was_not_picked_and_errs_beyond_all_bounds_is_left_out():
    rng = np.random.default_rng(9)
    truth, errors = kinds_and_a_third(rng)
    rows = rng.normal(size=(600, 5))
    worse = np.vstack([errors, np.full((1, 600), np.inf)])
    expected = remembering.relabel_with_memory(errors, TWO, truth, rows)
    assert np.array_equal(remembering.relabel_with_memory(worse, TWO, truth, rows), expected)


def test_where_weighed_models_leave_a_pick_no_row_they_are_not_weighed(monkeypatch):
    rng = np.random.default_rng(10)
    truth, errors = kinds_and_a_third(rng)
    rows = rng.normal(size=(600, 5))
    monkeypatch.setattr(remembering, "_fit_corrections", lambda by_errors, *_: np.eye(2)[:, :1] + 0 * by_errors)
    found = remembering.relabel_with_memory(errors, TWO, truth, rows)
    monkeypatch.setattr(remembering, "MIN_LIKELIHOOD_GAIN", np.inf)
    assert np.array_equal(found, remembering.relabel_with_memory(errors, TWO, truth, rows))


def test_the_slope_is_that_of_the_likelihood():
    rng = np.random.default_rng(6)
    by_errors, z, began = rng.normal(size=(3, 50)), rng.normal(size=(5, 50)), rng.uniform(0.1, 0.9, (3, 50))
    at = rng.normal(size=15)
    _, slope = remembering._penalized_loss(at, by_errors, z, began)
    for place in range(15):
        step = 1e-6 * np.eye(15)[place]
        ahead, behind = (remembering._penalized_loss(at + sign * step, by_errors, z, began)[0] for sign in (1, -1))
        assert slope[place] == pytest.approx((ahead - behind) / 2e-6, rel=1e-5, abs=1e-5)


def test_the_likelihood_is_that_of_its_formula():
    """One row, z = 2, w = (0, log 3 / 2): softmax(0, log 3) = (1/4, 3/4), and 1/4 * .8 + 3/4 * .4 = .5."""
    by_errors, z, began = np.zeros((2, 1)), np.array([[2.0]]), np.array([[0.8], [0.4]])
    found, _ = remembering._penalized_loss(np.array([0.0, np.log(3) / 2]), by_errors, z, began)
    assert found == pytest.approx(-np.log(0.5) + np.log(3) ** 2 / 8)


def test_rows_all_alike_and_single_picks_have_a_result():
    rows, first = np.zeros((6, 2)), np.array([0, 0, 1, 1, 0, 1])
    assert heard(np.ones((1, 6)), first, rows).tolist() == [0] * 6
    found = heard(np.zeros((2, 6)), first, rows)
    assert set(found.tolist()) <= {0, 1}
    assert remembering.neighbor_agreement(rows[:0], first[:0], first[:0]) == 0.0
    assert remembering.neighbor_agreement(rows[:2], first[:2], first[:2]) == 0.0


@pytest.mark.parametrize("remember", [True, False])
def test_a_run_heeds_the_first_clusters_only_if_asked(monkeypatch, remember):
    """And never in its first iteration, whose models learnt nothing but those clusters."""
    pytest.importorskip("torch")
    asked = []
    monkeypatch.setattr(
        fedcref_site, "relabel_with_memory", lambda _e, _p, first, rows: asked.append(len(rows)) or first
    )
    rng = np.random.default_rng(5)
    kinds = rng.random((3, 12))
    labels = np.repeat([0, 1], 20)
    held = {"a": (0, 1), "b": (1, 2), "c": (2, 0)}
    data = {
        name: np.clip(kinds[np.array(own)[labels]] + rng.normal(size=(40, 12)) / 20, 0, 1) for name, own in held.items()
    }
    fc.FedCRef(
        init=dict.fromkeys(held, labels), bounds=(0, 1), rate=3e-3, epochs=5, rounds=2, closing=1, closing_epochs=2,
        max_iterations=1, remember=remember,
    ).fit(fc.Federation.local(data))  # fmt: skip
    assert asked == ([40, 40, 40] if remember else [])
