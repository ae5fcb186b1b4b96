"""A row has one outcome, kept; another one is counted, and refused beyond the budget."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pandas as pd
import pytest

import fedclust as fc
from fedclust.core.errors import OverBudget
from fedclust.questions.schema import Column
from fedclust.site.site_file import read_site_file
from fedclust.site.sources import open_source

ROWS = np.random.default_rng(0).uniform(0, 10, (40, 2))


def seen(noise, rows=ROWS, site="north"):
    return np.concatenate([block.T for block in open_source(noise.apply_to({site: rows})[site], site=site).blocks()])


def test_the_same_rows_have_the_same_outcome():
    noise = fc.LocalNoise(2, bounds=(0, 10))
    first = seen(noise)
    assert (first != ROWS).all()
    assert (seen(noise) == first).all()
    assert noise.max_spent("north") == 2


def test_two_sites_with_the_same_rows_have_outcomes_of_their_own():
    noise = fc.LocalNoise(2, bounds=(0, 10))
    assert (seen(noise, site="north") != seen(noise, site="south")).any()


def test_outcomes_survive_the_process(tmp_path):
    first = seen(fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path))
    again = fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path)
    assert (seen(again) == first).all()
    assert again.max_spent("north") == 2
    assert (tmp_path / "north" / "noised").stat().st_mode & 0o077 == 0


def test_a_row_that_comes_again_among_others_is_refused(tmp_path):
    seen(fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path))
    later = fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path)
    with pytest.raises(OverBudget, match="appear again"):
        seen(later, np.concatenate([ROWS[:1], ROWS + 0.5]))
    assert seen(later, ROWS + 0.5).shape == ROWS.shape


def test_a_budget_has_room_for_so_many_outcomes_and_no_more():
    noise = fc.LocalNoise(2, bounds=(0, 10), budget=4)
    seen(noise, ROWS[:10])
    seen(noise, ROWS[:11])
    assert noise.max_spent("north") == 4
    with pytest.raises(OverBudget):
        seen(noise, ROWS[:12])


def test_another_epsilon_is_another_outcome(tmp_path):
    seen(fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path))
    with pytest.raises(OverBudget):
        seen(fc.LocalNoise(1, bounds=(0, 10), folder=tmp_path))
    with pytest.raises(OverBudget):
        seen(fc.LocalNoise(2, bounds=(0, 11), folder=tmp_path))


WIDE = np.random.default_rng(1).integers(0, 3, (40, 3)).astype(float)
NAMED = pd.DataFrame(WIDE, columns=list("cab")).assign(note=["x", "y"] * 20)
FORMS = ("array", "frame", "csv", "parquet", "sql")


def as_source(form, folder):
    """The same rows in each form a site may bring; columns c, a, b, and where there are texts, a note."""
    if form == "array":
        return WIDE
    if form == "frame":
        return NAMED
    if form == "parquet":
        NAMED.to_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    NAMED.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv" if form == "csv" else {"sql": "SELECT * FROM 'rows.csv'", "folder": str(folder)}


def view(noise, spec, columns, **options):
    source = open_source(noise.apply_to({"north": spec})["north"], site="north", columns=columns, **options)
    return dict(zip(source.columns, np.concatenate(list(source.blocks()), axis=1), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_no_choice_or_order_of_columns_gives_a_row_a_second_outcome(form, tmp_path):
    spec, noise = as_source(form, tmp_path), fc.LocalNoise(4, bounds=(0, 10))
    a, b, c = ("x1", "x2", "x0") if form == "array" else "abc"
    first = view(noise, spec, [a, b])
    for columns in ([b, a], [b], [a]):
        again = view(noise, spec, columns)
        assert list(again) == columns
        assert all((again[name] == first[name]).all() for name in columns)
    for columns in ([b, c], [a, b, c], [c]):
        with pytest.raises(OverBudget, match="other columns"):
            view(noise, spec, columns)
    assert noise.max_spent("north") == 4


@pytest.mark.parametrize("form", ["frame", "csv"])
def test_another_way_to_read_the_same_columns_is_another_outcome(form, tmp_path):
    spec, noise = as_source(form, tmp_path), fc.LocalNoise(4, bounds=(0, 10))
    view(noise, spec, ["a", "b"])
    levels = ["0.0", "1.0", "2.0"] if form == "csv" else [0, 1, 2]
    with pytest.raises(OverBudget):
        view(noise, spec, ["b"], schema={"b": Column("category", levels=levels)})
    with pytest.raises(OverBudget):
        view(noise, spec, ["c"], id="note", repeats=True)
    assert (view(noise, spec, ["b"], id="note", repeats=True)["b"] == view(noise, spec, ["b"])["b"]).all()


def test_a_further_view_is_charged_where_the_budget_has_room_for_it():
    noise = fc.LocalNoise(4, bounds=(0, 10), budget=8)
    first, second = (view(noise, WIDE, columns) for columns in (["x0", "x1"], ["x1", "x2"]))
    assert (first["x1"] != second["x1"]).any()
    assert noise.max_spent("north") == 8
    assert (view(noise, WIDE, ["x2"])["x2"] == second["x2"]).all()
    with pytest.raises(OverBudget):
        view(noise, WIDE, ["x0", "x2"])


def test_equal_columns_keep_outcomes_of_their_own():
    noise, twice = fc.LocalNoise(4, bounds=(0, 10)), np.repeat(ROWS[:, :1], 2, axis=1)
    first = seen(noise, twice)
    assert (first[:, 0] != first[:, 1]).any()
    assert (seen(noise, twice) == first).all()


def outcome(folder):
    try:
        return seen(fc.LocalNoise(2, bounds=(0, 10), folder=folder)).tolist()
    except OverBudget:
        return None


def test_two_who_keep_outcomes_in_one_folder_agree_on_what_was_spent(tmp_path):
    one, other = (fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path) for _ in range(2))
    assert one.max_spent("north") == other.max_spent("north") == 0  # both have looked
    first = seen(one, ROWS[:20])
    assert (seen(other, ROWS[:20]) == first).all()
    assert other.max_spent("north") == 2
    with pytest.raises(OverBudget):
        seen(other, ROWS[:21])
    seen(other, ROWS[20:])
    assert (seen(one, ROWS[:20]) == first).all()
    assert (seen(one, ROWS[20:]) == seen(other, ROWS[20:])).all()


def test_processes_that_come_at_once_give_one_outcome(tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(outcome, [tmp_path] * 8, chunksize=1)
    assert all(one == found[0] for one in found)
    assert found[0] is not None


def test_what_cannot_be_read_again_is_not_forgotten(tmp_path):
    noise = fc.LocalNoise(2, bounds=(0, 10), folder=tmp_path)
    seen(noise)
    (tmp_path / "north" / "noised").write_bytes(b"?")
    with pytest.raises(fc.DataError, match="another version"):
        seen(noise)


def test_equal_rows_of_one_batch_are_different_rows():
    noise = fc.LocalNoise(2, bounds=(0, 10))
    out = seen(noise, np.tile(ROWS[:1], (30, 1)))
    assert len(np.unique(out, axis=0)) > 1
    assert noise.max_spent("north") == 2


def test_gaps_are_refused():
    with pytest.raises(fc.DataError, match="has missing values"):
        seen(fc.LocalNoise(2, bounds=(0, 10)), np.array([[1.0, np.nan]]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0},
        {"epsilon": True},
        {"epsilon": 1, "bounds": None},
        {"epsilon": 1, "mechanism": "gauss"},
        {"epsilon": 1, "budget": -1},
    ],
)
def test_noise_that_cannot_be_is_refused(wrong):
    with pytest.raises(fc.StudyError):
        fc.LocalNoise(**({"bounds": (0, 1)} | wrong))


def test_bounds_may_be_given_by_column():
    noise = fc.LocalNoise(50, bounds={"x0": (0, 10), "x1": (0, 1000)})
    assert np.ptp(seen(noise), axis=0)[1] > 10
    with pytest.raises(fc.StudyError, match="bounds"):
        seen(fc.LocalNoise(50, bounds={"x0": (0, 10)}))


@pytest.mark.parametrize("model", [fc.SummaryClustering(), fc.FCAC(), fc.KFed(2), fc.MUFC(2)])
def test_methods_see_outcomes_only_and_say_so(model):
    rows = np.concatenate([ROWS / 5, ROWS / 5 + 8])
    noise = fc.LocalNoise(8, bounds=(0, 10))
    fed = fc.Federation.local(noise.apply_to({"north": rows, "south": rows[::-1] + 0.001}))
    model.fit(fed)
    assert "Epsilon is 8 for a whole row" in model.notes_[0]
    held = np.concatenate([b.T for h in fed.site_data.values() for b in h.source.blocks()])
    assert not (held[:, None, :] == rows[None, :, :]).all(axis=2).any()


def test_rounds_reuse_what_was_kept_and_noise_what_is_new():
    noise = fc.LocalNoise(8, bounds=(0, 20))
    model = fc.SummaryClustering().fit(fc.Federation.local(noise.apply_to({"north": ROWS, "south": ROWS + 0.1})))
    model.partial_fit(fc.Federation.local(noise.apply_to({"north": ROWS + 9})))
    assert noise.max_spent("north") == 8
    assert model.n_iter_ == 2


def test_a_large_epsilon_and_the_papers_noise_are_warned_of():
    assert "gives little protection" in fc.LocalNoise(50, bounds=(0, 1)).remarks(3)[1]
    assert "NOT differential privacy" in fc.LocalNoise(1, mechanism="paper").remarks(3)[0]


def site_file(folder, noise):
    path = folder / "site.toml"
    np.savetxt(folder / "rows.csv", ROWS, delimiter=",", header="a,b", comments="")
    path.write_text(
        f'name = "north"\nsource = "rows.csv"\nstate = "state"\n[policy]\nprofile = "standard"\n[noise]\n{noise}\n'
    )
    return path


def test_a_served_site_shows_outcomes_only_and_the_same_ones_after_a_restart(tmp_path):
    path = site_file(tmp_path, "epsilon = 4\nbounds = [0, 10]")
    first, again = (next(iter(read_site_file(path).open_server().site_data.source.blocks())) for _ in range(2))
    assert (first != ROWS.T).all()
    assert (first == again).all()


def test_studies_of_a_served_site_see_one_outcome_of_each_column(tmp_path):
    path = site_file(tmp_path, "epsilon = 4\nbounds = [0, 10]")
    first = next(iter(read_site_file(path).open_server(columns=("a", "b")).site_data.source.blocks()))
    turned = next(iter(read_site_file(path).open_server(columns=("b", "a")).site_data.source.blocks()))
    assert (turned == first[::-1]).all()
    with pytest.raises(fc.StudyError, match="no noise"):
        read_site_file(path).open_server(columns=("a",), id="b")


def test_a_site_file_with_noise_names_epsilon_and_bounds(tmp_path):
    with pytest.raises(fc.StudyError, match="epsilon"):
        read_site_file(site_file(tmp_path, "bounds = [0, 10]"))
    with pytest.raises(fc.StudyError, match="public bounds"):
        read_site_file(site_file(tmp_path, "epsilon = 4"))
    with pytest.raises(fc.StudyError, match="mechanism"):
        read_site_file(site_file(tmp_path, 'epsilon = 4\nmechanism = "gauss"'))
