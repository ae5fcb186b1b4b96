"""Rows offered to a model later: columns are found by name, however sites list them, or the model says why not."""

import re

import numpy as np
import pandas as pd
import pytest

import fedclust as fc

NAMES = ["a", "b", "c"]
TURNED = ["c", "a", "b"]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    places = np.array([[0.0, 50.0, 7.0], [60.0, 4.0, -30.0], [-20.0, -70.0, 40.0]])
    return rng.normal(size=(45, 3)) + np.repeat(places, 15, axis=0)


X = rows()


def by_rows(names):
    picked = X[:, [NAMES.index(name) for name in names]]
    return fc.Federation.local({"p": picked[:20], "q": picked[20:]}, columns=names)


def by_columns(names):
    held = {name: X[:, [NAMES.index(name)]] for name in names}
    return fc.Federation.local(
        {f"site {name}": own for name, own in held.items()},
        columns={f"site {name}": [name] for name in names},
        split="columns",
    )


@pytest.mark.parametrize("scale", ["none", "standardise"])
@pytest.mark.parametrize("fitted_on", [by_rows, by_columns])
@pytest.mark.parametrize("offered", [by_rows, by_columns])
@pytest.mark.parametrize("kind", [fc.KMeans, fc.FuzzyCMeans])
def test_columns_of_a_federation_go_by_name(kind, offered, fitted_on, scale):
    model = kind(3, scale=scale).fit(fitted_on(NAMES))
    assert len(set(model.labels_)) == 3
    assert np.array_equal(model.predict(offered(TURNED)), model.labels_)
    if kind is fc.FuzzyCMeans:
        assert np.allclose(model.memberships(offered(TURNED)), model.memberships(X), rtol=1e-9)


def test_columns_of_a_mixture_go_by_name():
    model = fc.GaussianMixture(3).fit(by_rows(NAMES))
    turned = by_rows(TURNED)
    assert np.array_equal(model.predict(turned), model.labels_)
    assert np.array_equal(model.predict_proba(turned), model.predict_proba(by_rows(NAMES)))
    assert np.array_equal(model.score_samples(turned), model.score_samples(by_rows(NAMES)))


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score_samples"])
def test_a_mixture_does_not_guess_over_columns(ask):
    model = fc.GaussianMixture(3).fit(by_rows(NAMES))
    with pytest.raises(fc.DataError, match="works on row splits only"):
        getattr(model, ask)(by_columns(NAMES))


def test_one_that_votes_does_not_guess_over_columns():
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(400, 2)) + np.repeat([[0, 0], [9, 9]], 200, axis=0)
    model = fc.SummaryClustering().fit(fc.Federation.local({"p": Y}, columns=["a", "b"]))
    columns = fc.Federation.local({"p": Y[:, :1], "q": Y[:, 1:]}, columns={"p": ["a"], "q": ["b"]}, split="columns")
    with pytest.raises(fc.DataError, match="works on row splits only"):
        model.predict(columns)


@pytest.mark.parametrize("ask", ["predict", "memberships"])
@pytest.mark.parametrize("offered", [by_rows, by_columns])
def test_another_number_of_columns_is_told(offered, ask):
    model = fc.FuzzyCMeans(3).fit(by_rows(NAMES))
    with pytest.raises(fc.DataError, match="2 columns, but the model has 3; use the model's columns: a, b, c"):
        getattr(model, ask)(offered(["a", "b"]))


def test_columns_of_other_names_are_not_taken_by_place():
    model = fc.FuzzyCMeans(3).fit(by_rows(NAMES))
    other = fc.Federation.local({"p": X}, columns=["a", "b", "d"])
    with pytest.raises(fc.DataError, match="no column 'c'"):
        model.predict(other)
    nameless = fc.Federation.local({"q": X[:, 1:], "p": X[:, :1]}, split="columns")
    with pytest.raises(fc.DataError, match="no column 'a'"):
        model.predict(nameless)
    with pytest.raises(fc.DataError, match="no column 'c'"):
        fc.indices.xie_beni(model, other)


def test_bare_arrays_go_by_place():
    model = fc.FuzzyCMeans(3).fit(by_rows(NAMES))
    assert np.array_equal(model.predict(fc.Federation.local({"p": X})), model.labels_)
    model = fc.FuzzyCMeans(3).fit(X)
    assert np.array_equal(model.predict(by_rows(NAMES)), model.labels_)


@pytest.mark.parametrize(
    ("fitted", "offered", "aspect"),
    [
        (fc.Column("ordinal", levels=[0, 1, 2]), fc.Column("ordinal", levels=[2, 1, 0]), "order of levels"),
        (fc.Column("ordinal", levels=[0, 1, 2]), fc.Column(), "type"),
        (fc.Column(unit="cm"), fc.Column(unit="m"), "unit"),
        (fc.Column(missing_values=[9]), fc.Column(), "marker for missing values"),
    ],
)
def test_a_column_that_means_something_else_is_refused(fitted, offered, aspect):
    Y = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 40.0], [2.0, 41.0]])
    model = fc.KMeans(2).fit(fc.Federation.local({"p": Y}, columns={"a": fitted, "b": fc.Column()}))
    with pytest.raises(fc.DataError, match=re.escape(f"column 'a' differs from the model's ({aspect})")):
        model.predict(fc.Federation.local({"p": Y}, columns={"a": offered, "b": fc.Column()}))


FITTED = [fc.KMeans(3), fc.FuzzyCMeans(3, scale="standardise"), fc.GaussianMixture(3), fc.KFed(3)]


@pytest.mark.parametrize("model", FITTED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("ask", ["predict", "memberships", "score_samples"])
def test_values_of_which_no_distance_can_be_taken_are_refused_as_by_a_fit(model, ask):
    model = type(model)(**model.get_params()).fit(X)
    if not hasattr(model, ask):
        return
    far = X.copy()
    far[[3, 40], 1] = 1e200, -1e308
    with pytest.raises(fc.DataError, match=r"^column 'x1' holds 2 values beyond 2\^127;"):
        getattr(model, ask)(far)
    sites = fc.Federation.local({"p": far[:20], "q": far[20:]})
    with pytest.raises(fc.DataError, match=r"^column 'x1' of site 'p' holds 1 value beyond 2\^127;"):
        getattr(model, ask)(sites)
    far[[3, 40], 1] = 2.0**127, -(2.0**127)
    assert np.isfinite(getattr(model, ask)(far)).all()


def test_rows_that_are_left_out_may_hold_anything():
    gappy = X.copy()
    gappy[0] = np.nan
    gappy[0, 1] = 1e200
    model = fc.KMeans(3, missing="drop").fit(gappy)
    assert model.predict(gappy)[0] == model.labels_[0] == model.labels_of_block(gappy[:1].T)[0] == -1


def test_values_of_which_no_distance_can_be_taken_are_refused_by_name_and_in_blocks():
    model = fc.FuzzyCMeans(3).fit(by_rows(NAMES))
    far = X.copy()
    far[3] = 1e200
    with pytest.raises(fc.DataError, match=r"column 'a' holds 1 value beyond 2\^127 \(as do 2 more columns\)"):
        model.predict(pd.DataFrame(far, columns=NAMES))
    for ask in (model.labels_of_block, model.memberships_of_block):
        with pytest.raises(fc.DataError, match="column 'a' holds 1 value"):
            ask(np.ascontiguousarray(far.T))
