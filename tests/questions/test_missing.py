"""Gaps are refused, dropped or worked around; never silently, and never with a value in the sentence."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import fedclust as fc
from fedclust.core.effects import run_on_own_rows
from fedclust.core.envelope import Call, Refusal
from fedclust.core.site_interface import View
from fedclust.questions import standardisation
from fedclust.questions.bounds import ColumnsQuestion
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import HandlerContext, SiteData
from fedclust.site.sources import open_source, survey
from fedclust.site.sources.row_survey import select_rows

NAN = np.nan
ROWS = np.array([[1.0, 10.0], [2.0, NAN], [NAN, NAN], [4.0, 40.0], [NAN, 50.0]])


def fed_of(**sites):
    return fc.Federation.local({name: np.asarray(X, float) for name, X in sites.items()}, columns=["age", "dose"])


def test_which_rows_take_part():
    block = np.ascontiguousarray(ROWS.T)
    assert select_rows(block, "drop").T.tolist() == [[1, 10], [4, 40]]
    assert np.array_equal(select_rows(block, "partial"), block[:, [0, 1, 3, 4]], equal_nan=True)
    assert select_rows(block, "refuse") is block


def test_a_survey_counts_rows_and_gaps_for_each_way():
    source = open_source(ROWS, site="a")
    dropped, partial = survey(source, "drop"), survey(source, "partial")
    assert (dropped.rows, dropped.left_out, dropped.gaps.tolist()) == (2, 3, [2, 2])
    assert (dropped.lo.tolist(), dropped.hi.tolist()) == ([1, 10], [4, 40])
    assert (partial.rows, partial.left_out) == (4, 1)
    assert partial.largest.tolist() == [4, 50]


def test_a_column_without_a_value_at_a_site_has_no_magnitude():
    assert survey(open_source(np.array([[1.0, NAN], [2.0, NAN]])), "partial").largest.tolist() == [2, 0]


def test_infinite_values_are_refused_whatever_happens_to_gaps():
    X = np.array([[1.0, np.inf], [NAN, 2.0]])
    for missing in ("drop", "partial"):
        with pytest.raises(fc.DataError, match="column 'x1' of site 'here' holds 1 infinite value; "):
            survey(open_source(X), missing)


def test_gaps_are_refused_unless_asked_for_with_column_and_count():
    with pytest.raises(fc.DataError, match="column 'age' of site 'a' holds 2 missing values") as caught:
        fc.KMeans(1).fit(fed_of(a=ROWS))
    assert "set missing to 'drop' or 'partial'" in str(caught.value)


def test_drop_says_how_many_rows_of_which_site_it_left_out():
    fed = fed_of(cleveland=ROWS, hungary=[[1.0, 2.0], [3.0, 4.0]], va=[[NAN, 1.0], [5.0, 6.0]])
    model = fc.KMeans(2, init="box", missing="drop").fit(fed)
    assert model.notes_[0] == (
        "Missing values: 'drop' left out rows with a missing value: 3 of 5 rows at cleveland and 1 of 2 rows at va."
    )
    assert model.cluster_sizes_.sum() == 5
    assert (model.labels_ < 0).tolist() == [False, True, True, False, True, False, False, True, False]
    assert model.predict([[1.0, NAN]]).tolist() == [-1]


def test_partial_says_what_lacks_where_and_whom_it_left_out():
    model = fc.FuzzyCMeans(2, init="box", missing="partial").fit(fed_of(a=ROWS, b=[[1.0, 2.0], [3.0, NAN]]))
    assert model.notes_[:2] == [
        "Missing values: 'partial' left out rows without any value: 1 of 5 rows at a.",
        (
            "Missing values: 6 rows took part with partial distances, which skip missing values. The missing "
            "values are 4 of 10 at a and 1 of 4 at b, "
            "most of them in column dose (3)."
        ),
    ]
    assert model.labels_[2] == -1
    assert np.isnan(model.memberships([[NAN, NAN], [1.0, NAN]])).all(axis=1).tolist() == [True, False]


def test_where_nothing_lacks_nothing_is_noted():
    for missing in ("drop", "partial"):
        model = fc.KMeans(2, init=[[1.0, 2.0], [3.0, 4.0]], missing=missing).fit(fed_of(a=[[1.0, 2.0], [3.0, 4.0]]))
        assert model.notes_ == []


def test_a_site_of_which_no_row_is_left_takes_part_with_none():
    fed = fed_of(whole=[[0.0, 1.0], [1.0, 0.0], [9.0, 9.0], [8.0, 9.0]], gaps=[[NAN, 1.0]] * 3)
    for start in ("box", "careful", [[0.0, 0.0], [9.0, 9.0]]):
        model = fc.KMeans(2, init=start, scale="standardise", missing="drop").fit(fed)
        assert "3 of 3 rows at gaps" in model.notes_[0]
        assert np.isfinite(model.cluster_centers_).all()


def test_too_few_rows_that_take_part_are_too_few():
    with pytest.raises(fc.DataError, match="n_samples=2 is fewer than n_clusters=3"):
        fc.KMeans(3, missing="drop").fit(fed_of(a=ROWS))


def test_a_column_without_a_value_anywhere_is_refused_by_name():
    fed = fed_of(a=[[1.0, NAN], [2.0, NAN]], b=[[3.0, NAN]])
    with pytest.raises(fc.DataError, match="column 'dose' has no value at any site"):
        fc.KMeans(2, missing="partial", scale="standardise").fit(fed)


def test_the_floor_of_a_policy_counts_the_rows_that_take_part():
    X = np.ones((12, 2))
    X[:9, 0] = NAN
    sites, policy = {"a": X, "b": np.ones((12, 2)) * 5}, Policy("own", min_rows=5)
    with pytest.raises(fc.QuorumLost) as lost:
        fc.KMeans(2, init="box", missing="drop").fit(fc.Federation.local(sites, policy=policy))
    assert lost.value.missing == {"a": "too-few-rows"}
    fc.KMeans(2, init="box", missing="partial").fit(fc.Federation.local(sites, policy=policy))


def test_a_way_with_gaps_that_a_site_does_not_know_is_refused_by_code():
    desk = SiteServer(SiteData("a", open_source(ROWS)), PROFILES["none"])
    ask = Call("r", 1, "bounds.count_rows", ColumnsQuestion(2, "guess"), "total", ("a",))
    assert desk.answer_bytes(ask.wire_bytes) == Refusal("a", "bad-data")
    assert desk.gate.ledger.entries == []


@pytest.mark.parametrize("missing", ["drop", "partial"])
def test_files_and_frames_with_gaps_give_the_same_bits(missing, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    X[rng.random(X.shape) < 0.2] = NAN
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    pa.parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet", row_group_size=17)
    options = {"init": X[~np.isnan(X).any(axis=1)][:2], "scale": "standardise", "missing": missing, "max_iter": 5}
    models = [
        fc.FuzzyCMeans(2, **options).fit(fc.Federation.local({"a": spec}, columns=["a", "b", "c"]))
        for spec in (frame, tmp_path / "t.csv", tmp_path / "t.parquet")
    ]
    for other in models[1:]:
        assert np.array_equal(other.cluster_centers_, models[0].cluster_centers_)
        assert other.notes_ == models[0].notes_


def test_standardisation_with_gaps_by_hand():
    view = View(np.array([3, 6], np.int32), missing="partial")
    turn = HandlerContext(
        SiteData("p", open_source(np.array([[1.0, 20.0], [3.0, NAN], [NAN, NAN]]))), (0, 1), {}, "partial"
    )
    found = run_on_own_rows(standardisation.column_statistics(view), turn)
    assert found.counts.tolist() == [2, 1]
    assert found.mean.tolist() == [2, 20]
    assert found.sd.tolist() == [1, 0]


@pytest.mark.parametrize("missing", ["refuse", "drop", "partial"])
@pytest.mark.parametrize("seed", range(12))
def test_means_and_deviations_are_the_pooled_ones_to_the_last_bit(seed, missing):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(20, 150)), 3)) * 10.0 ** rng.integers(-6, 7, size=3) + rng.choice([0, 1e6])
    if missing != "refuse":
        X[rng.random(X.shape) < 0.3] = NAN
    cuts = np.sort(rng.choice(np.arange(1, len(X)), int(rng.integers(1, 15)), replace=False))
    parts = {f"p{i}": X[own] for i, own in enumerate(np.split(rng.permutation(len(X)), cuts))}

    def found(sites):
        view = View(np.full(3, 30, np.int32), missing=missing)
        return fc.Federation.local(sites).run(standardisation.column_statistics(view), missing=missing)[0]

    one, many = found({"all": X}), found(parts)
    assert one.counts.tolist() == many.counts.tolist()
    assert np.array_equal(one.mean, many.mean)
    assert np.array_equal(one.sd, many.sd)
    used = X[~np.isnan(X).any(axis=1)] if missing == "drop" else X
    assert one.mean == pytest.approx(np.nanmean(used, axis=0), rel=1e-9, abs=1e-6 * np.nanstd(used, axis=0).max())


def test_minmax_needs_public_bounds_and_uses_them():
    with pytest.raises(fc.StudyError, match="'minmax' needs public bounds"):
        fc.KMeans(1, scale="minmax").fit(ROWS[[0, 3]])
    model = fc.KMeans(1, scale="minmax", bounds=[(0, 8), (0, 80)], missing="partial").fit(ROWS)
    assert model.scaled_centers_.tolist() == [[7 / 3 / 8, 100 / 3 / 80]]
    assert model.origin_.tolist() == [0, 0]
    assert model.spread_.tolist() == [8, 80]
