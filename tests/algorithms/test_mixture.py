"""Gaussian mixtures by sums: formulas by hand, a peer's numbers, and the pooled bits for every partition."""

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer

import fedclust as fc
from fedclust import kernels
from fedclust.algorithms.gaussian_mixture import densities, mixture
from fedclust.algorithms.gaussian_mixture.mixture import FAMILIES, EvaluatedMixture, Mixture
from fedclust.core.errors import OutOfBounds
from fedclust.core.ring import Exact
from fedclust.questions import bounds

PEERS = {"VII": "spherical", "VVI": "diag", "EEE": "tied"}


def rows(seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    tilted = rng.normal(size=(70, 3)) @ rng.normal(size=(3, 3))
    return np.concatenate([tilted, rng.normal(size=(90, 3)) + 3, 2 * rng.normal(size=(50, 3)) - 4]) + offset


def climbed(sites, family, start, *, tol=None, max_iter=6, wire=False):
    """The frame, the mixture EM began with, and where it ended."""
    fed = fc.Federation.local(sites, wire=wire)

    def script():
        view = yield from bounds.agree_on_bounds(len(fed.columns))
        frame = yield from mixture.make_frame(view, full=family == "EEE")
        ((begin,),) = yield from mixture.start_mixtures(frame, [family], [frame.view.transform_points(start)])
        (end,) = yield from mixture.run_em(frame, [begin], tol=tol, max_iter=max_iter)
        return frame, begin, end

    return fed.run(script())[0]


def evaluated(family="EII", k=3, columns=4, log=-10.0, entropy=2.0):
    some = Mixture(family, np.full(k, 1 / k), np.zeros((k, columns)), np.ones((1, 1)))
    return EvaluatedMixture(some, log, entropy, np.ones(k), np.ones(k))


@pytest.mark.parametrize(("family", "count"), [("EII", 15), ("VII", 17), ("VVI", 26), ("EEE", 24)])
def test_free_numbers_of_three_components_in_four_columns(family, count):
    # 12 means, 2 weights; 1 variance, 3, 12, or the 10 of a symmetric 4 x 4 matrix
    assert mixture.count_parameters(family, 3, 4) == count


def test_bic_and_icl_by_hand():
    # 15 numbers, 100 rows: 20 + 15 log 100, and twice the entropy more
    assert mixture.bic(evaluated(), 100) == pytest.approx(20 + 15 * math.log(100), rel=1e-15)
    assert mixture.icl(evaluated(), 100) == pytest.approx(24 + 15 * math.log(100), rel=1e-15)


def test_four_rows_by_hand():
    # Nearest to 0 and 10: weights 1/2, means 0 and 10, variance 1. Each row: log 1/2 - log(2 pi)/2 - 1/2 + O(e^-40).
    X = np.array([[-1.0], [1.0], [9.0], [11.0]])
    _, begin, end = climbed({"a": X[:1], "b": X[1:]}, "EII", np.array([[0.5], [8.0]]), max_iter=1)
    assert begin.weights.tolist() == [0.5, 0.5]
    assert begin.variance.tolist() == [[1.0]]
    assert end.log == pytest.approx(4 * (math.log(0.5) - math.log(2 * math.pi) / 2 - 0.5), abs=1e-12)
    assert end.entropy == pytest.approx(0, abs=1e-12)
    assert end.radii == pytest.approx([1, 1])


def test_two_components_in_one_place_leave_every_row_undecided():
    fed = fc.Federation.local({"a": np.array([[-1.0], [0.5]]), "b": np.array([[0.5]])})

    def script():
        frame = yield from mixture.make_frame((yield from bounds.agree_on_bounds(1)), full=False)
        twice = Mixture("VII", np.full(2, 0.5), np.zeros((2, 1)), np.ones((2, 1)))
        return (yield from mixture.sum_mixtures(frame, [mixture.to_gaussians(twice, frame)]))[0]

    found = fed.run(script())[0]
    assert found.entropy == pytest.approx(3 * math.log(2), rel=1e-14)
    assert found.mass.tolist() == [1.5, 1.5]
    # Standard normal densities of -1, .5 and .5
    assert found.log == pytest.approx(-1.5 * math.log(2 * math.pi) - (1 + 0.25 + 0.25) / 2, rel=1e-14)


def _scores(m, X):
    """The scores log pi_k N(x | m_k, S_k), by scipy."""
    k, columns = m.means.shape
    full = {
        "EII": lambda _: m.variance[0, 0] * np.eye(columns),
        "VII": lambda i: m.variance[i, 0] * np.eye(columns),
        "VVI": lambda i: np.diag(m.variance[i]),
        "EEE": lambda _: m.variance,
    }[m.family]
    parts = [np.log(m.weights[i]) + multivariate_normal(m.means[i], full(i)).logpdf(X) for i in range(k)]
    return np.stack(parts, axis=-1).reshape(len(X), k)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("family", FAMILIES)
def test_likelihood_and_entropy_are_scipys(family, offset):
    X = rows(offset=offset)
    frame, _, end = climbed({"a": X[:100], "b": X[100:]}, family, X[[0, 100, 200]])
    t = _scores(end.mixture, X - frame.view.origin)
    log = logsumexp(t, axis=1)
    assert end.log == pytest.approx(log.sum(), rel=1e-12)
    r = np.exp(t - log[:, None])
    assert end.entropy == pytest.approx(-(r * (t - log[:, None])).sum(), rel=1e-9)
    assert end.mass == pytest.approx(r.sum(axis=0), rel=1e-11)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("family", PEERS)
def test_the_log_likelihood_is_scikit_learns_from_the_same_start(family, offset):
    X = rows(1, offset)
    frame, begin, end = climbed({"a": X}, family, X[[0, 100, 200]], max_iter=8)
    centred = X - frame.view.origin
    precisions = np.linalg.inv(begin.variance) if family == "EEE" else 1 / begin.variance.squeeze()
    peer = Peer(
        3,
        covariance_type=PEERS[family],
        reg_covar=0,
        tol=0,
        max_iter=8,
        weights_init=begin.weights,
        means_init=begin.means,
        precisions_init=precisions,
    )
    with pytest.warns(ConvergenceWarning):
        peer.fit(centred)
    assert end.log / len(X) == pytest.approx(peer.score(centred), abs=1e-8)
    assert end.mixture.means == pytest.approx(peer.means_, abs=1e-8)
    assert end.mixture.weights == pytest.approx(peer.weights_, abs=1e-8)


def test_a_round_never_lowers_the_likelihood():
    X = rows(2)
    for family in FAMILIES:
        _, _, end = climbed({"a": X}, family, X[[0, 1, 2]], max_iter=20)
        levels = [-step.objective for step in end.history] + [end.log]
        assert (np.diff(levels) > -1e-9 * abs(end.log)).all()


def bits(found):
    _, begin, end = found
    m = end.mixture
    numbers = (begin.means, begin.variance, m.weights, m.means, m.variance, end.mass, end.radii)
    return *(a.tobytes() for a in numbers), end.log, end.entropy, end.history, end.converged


@contextlib.contextmanager
def threads(count):
    before = kernels.threads()
    kernels.set_threads(count)
    try:
        yield
    finally:
        kernels.set_threads(before)


def hard(rng, X):
    """What makes arithmetic hard."""
    kind = rng.choice(["plain", "offset", "scales", "ties", "float32", "constant", "outlier"])
    if kind == "offset":
        X = X + 1e6
    if kind == "scales":
        X = X * 10.0 ** rng.integers(-6, 7, size=X.shape[1])
    if kind == "ties":
        X = np.round(X)
    if kind == "float32":
        X = X.astype(np.float32)
    if kind == "constant":
        X = np.column_stack([X, np.full(len(X), 7.0)])
    if kind == "outlier":
        X[0] *= 1e9
    return X


def check_partition(seed):
    rng = np.random.default_rng(seed)
    X = hard(rng, rows(seed))
    start = X[rng.choice(len(X), 3, replace=False)].astype(float)
    shuffled = rng.permutation(X)
    cuts = np.sort(rng.choice(np.arange(1, len(X)), int(rng.integers(1, 40)), replace=False))
    parts = {f"p{i}": part for i, part in enumerate(np.split(shuffled, cuts))}
    for family in FAMILIES:
        tol = float(rng.choice([1e-3, 1e-9]))
        pooled = climbed({"all": X}, family, start, tol=tol)
        with threads(int(rng.integers(1, 3))), kernels.use_backend(str(rng.choice(["c", "numpy"]))):
            assert bits(climbed(parts, family, start, tol=tol, wire=bool(rng.integers(2)))) == bits(pooled)
        assert np.isfinite(pooled[2].log)


@pytest.mark.parametrize("seed", range(8))
def test_rows_at_any_parties_give_the_pooled_bits(seed):
    check_partition(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 300))
def test_hundreds_of_partitions(seed):
    check_partition(seed)


def test_many_mixtures_climb_together_as_each_does_alone():
    X = rows(3)
    fed = fc.Federation.local({"a": X[:50], "b": X[50:]})

    def script(together):
        view = yield from bounds.agree_on_bounds(3)
        frame = yield from mixture.make_frame(view, full=True)
        starts = yield from mixture.start_mixtures(frame, FAMILIES, [X[[0, 100]], X[[0, 100, 200]]])
        flat = [m for row in starts for m in row]
        if together:
            return (yield from mixture.run_em(frame, flat, tol=1e-5, max_iter=9))
        found = []
        for m in flat:
            found += yield from mixture.run_em(frame, [m], tol=1e-5, max_iter=9)
        return found

    for a, b in zip(fed.run(script(True))[0], fed.run(script(False))[0], strict=True):
        assert (a.log, a.entropy, a.history) == (b.log, b.entropy, b.history)
        assert np.array_equal(a.mixture.means, b.mixture.means)


def test_a_row_far_away_has_the_likelihood_it_has():
    X = rows(4)
    X[0] = 1e7  # some 1e13 variances away: the bound of a log density is as far off
    frame, _, end = climbed({"a": X}, "EII", X[[5, 100, 200]], max_iter=1)
    log = logsumexp(_scores(end.mixture, X - frame.view.origin), axis=1)
    assert end.log == pytest.approx(log.sum(), rel=1e-12)


def test_collinear_and_constant_columns_stay_finite():
    X = rows(5)
    X = np.column_stack([X, X[:, 0] - X[:, 1], np.full(len(X), 3.0)])
    for family in FAMILIES:
        _, _, end = climbed({"a": X}, family, X[[0, 100, 200]])
        assert np.isfinite(end.log)
        assert np.isfinite(end.mixture.means).all()


def test_variances_have_a_floor_relative_to_what_they_are_of():
    X = np.concatenate([np.zeros((30, 2)), np.full((30, 2), 8.0)]) * [1.0, 1000.0]  # two points, thirty times each
    frame, _, end = climbed({"a": X}, "VVI", np.array([[0.0, 0.0], [8.0, 8000.0]]), max_iter=2)
    assert frame.variance == pytest.approx([16, 16e6])
    assert end.mixture.variance == pytest.approx(np.tile([16e-5, 160.0], (2, 1)))
    _, _, end = climbed({"a": X}, "VII", np.array([[0.0, 0.0], [8.0, 8000.0]]), max_iter=2)
    assert end.mixture.variance == pytest.approx(np.full((2, 1), 1e-5 * (16 + 16e6) / 2))


def test_a_component_without_rows_stays_and_the_others_go_on():
    X = rows(6)
    start = np.concatenate([X[[0, 100]], [[500.0, 500, 500]]])
    frame, _, end = climbed({"a": X}, "VVI", start, max_iter=3)
    assert end.mass[2] < mixture.MIN_COMPONENT_MASS
    assert end.mixture.means[2] == pytest.approx(start[2] - frame.view.origin)
    assert np.isfinite(end.log)


def test_what_exceeds_an_agreed_bound_is_refused_not_wrapped():
    with pytest.raises(OutOfBounds, match="beyond the bound agreed on before"):
        densities.check_reach(np.array([[0.0, 4.1]]), np.array([2], np.int32))
    of = replace(mixture.nearest_gaussians(np.zeros((1, 1))), unit=-51)  # log densities within -1 and 1
    with pytest.raises(OutOfBounds, match="log density"):
        densities._sum_of_logs(np.array([-3.0]), of)
    limbs = densities._sum_of_logs(np.array([-0.75, 2.0**-80]), of)  # negative, inside, with digits below 2^-51
    assert Exact(limbs[None], np.array([-91], np.int32)).to_integers() == [-3 * 2**89 + 2**11]


def test_whitening_does_not_depend_on_the_shape_of_a_block():
    rng = np.random.default_rng(7)
    A = rng.normal(size=(6, 6))
    root = np.linalg.cholesky(A @ A.T + np.eye(6))
    x = rng.normal(size=(6, 2500))
    white = densities.whiten(x, root)
    assert np.array_equal(white[:, 700:1301], densities.whiten(x[:, 700:1301], root))
    assert white == pytest.approx(np.linalg.solve(root, x), rel=1e-9)
