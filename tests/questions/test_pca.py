"""The plane of most variance: as the textbook's, as scikit-learn's, and the same bits for every partition."""

import numpy as np
from sklearn.decomposition import PCA

import fedclust as fc
from fedclust.questions import bounds, pca, standardisation

RNG = np.random.default_rng(11)
X = RNG.normal(size=(300, 5)) @ RNG.normal(size=(5, 5)) + 100.0
CENTERS = X[[3, 50, 200]]


def looked(rows, missing="refuse"):
    """The plane and the spread of rows at sites."""
    fed = fc.Federation.local(rows if isinstance(rows, dict) else {"one": rows})
    width = len(fed.columns)

    def script():
        view = yield from bounds.agree_on_bounds(width, missing)
        found = yield from standardisation.column_statistics(view)
        plane = yield from pca.plane(view, found)
        return plane, (yield from pca.cluster_spread(view, CENTERS[:, :width], plane))

    return fed.run(script(), missing=missing)[0]


def bits(plane, spread):
    return [
        part.tobytes()
        for part in (plane.mean, plane.axes, plane.variances, spread.counts, spread.means, spread.covariances)
    ]


def test_the_plane_is_that_of_scikit_learn():
    plane, _ = looked({"a": X[:20], "b": X[20:21], "c": X[21:]})
    peer = PCA(2, svd_solver="full").fit(X)
    signs = np.sign((peer.components_ * plane.axes).sum(axis=1))
    np.testing.assert_allclose(plane.axes, peer.components_ * signs[:, None], atol=1e-9)
    np.testing.assert_allclose(plane.variance_shares, peer.explained_variance_ratio_, atol=1e-12)
    assert (plane.axes[[0, 1], np.abs(plane.axes).argmax(axis=1)] > 0).all()


def test_every_partition_gives_the_same_bits():
    expected = bits(*looked(X))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        parts = np.split(X[rng.permutation(len(X))], np.sort(rng.choice(np.arange(1, 299), 1 + seed, replace=False)))
        assert bits(*looked({f"p{i}": part for i, part in enumerate(parts)})) == expected


def test_spread_is_the_covariance_of_the_nearest_rows():
    plane, spread = looked(X)
    labels = ((X[:, None] - CENTERS) ** 2).sum(axis=2).argmin(axis=1)
    places = (X - X.mean(axis=0)) @ plane.axes.T
    for cluster in range(3):
        own = places[labels == cluster]
        assert spread.counts[cluster] == len(own)
        np.testing.assert_allclose(spread.means[cluster], own.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(spread.covariances[cluster], np.cov(own.T, bias=True), atol=1e-9)


def test_digits_survive_far_from_zero():
    plane, spread = looked(X)
    there, shifted = looked(X + 2.0**34)  # which costs the rows themselves some digits
    np.testing.assert_allclose(there.axes, plane.axes, atol=1e-4)
    np.testing.assert_allclose(there.variances, plane.variances, rtol=1e-4)
    assert shifted.counts.sum() == spread.counts.sum()


def test_gaps_count_as_the_mean_of_their_column():
    gapped = X[:, :3].copy()
    gapped[RNG.random(gapped.shape) < 0.2] = np.nan
    gapped = gapped[~np.isnan(gapped).all(axis=1)]
    plane, spread = looked({"a": gapped[:90], "b": gapped[90:]}, missing="partial")
    filled = np.where(np.isnan(gapped), np.nanmean(gapped, axis=0), gapped)
    np.testing.assert_allclose(plane.variance_shares, PCA(2).fit(filled).explained_variance_ratio_, atol=1e-12)
    assert spread.counts.sum() == len(gapped)


def test_one_column_and_constant_columns_are_no_trouble():
    plane, _ = looked(X[:, :1])
    assert plane.variance_shares == (1.0, 0.0)
    plane, spread = looked(np.full((9, 2), 4.0))
    assert plane.variance_shares == (0.0, 0.0)
    assert np.isfinite(spread.covariances).all()


def test_of_many_columns_the_widest_are_looked_at():
    sd = np.arange(100.0)
    sd[7] = 500.0
    assert pca.widest_columns(sd).tolist() == [7, *range(37, 100)]


def test_a_level_that_few_rows_have_takes_no_part_in_products():
    """Fewer than three rows of all sites have the level: its products with other columns would show them."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), np.arange(60) < 2, np.arange(60) < 20, np.arange(60) >= 1]).astype(float)
    fed = fc.Federation.local({"a": X[:25], "b": X[25:]})

    def script():
        view = yield from bounds.agree_on_bounds(4)
        scaled = yield from standardisation.standardise(view)
        for seen in (view, scaled):
            found = yield from standardisation.column_statistics(seen)
            rare = standardisation.rare_levels(seen, found, 3)
            assert rare.tolist() == [False, True, False, True]
            assert not standardisation.rare_levels(seen, found, 1).any()
            drawn = yield from pca.plane(seen, found, floor=3)
            assert drawn.columns.tolist() == [0, 2]

    fed.run(script())
