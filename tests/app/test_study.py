"""A study file as objects: what it says, what it leaves out, and where its paths start."""

from pathlib import Path

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.study import parse_study, read_study, study_keys
from fedclust.models.methods import study_methods

FULL = """
name = "heart"
columns = ["age", "bp"]
scale = "minmax"
missing = "refuse"
split = "rows"
id = "who"
bounds = { bp = [0, 300], age = [0, 120] }
seed = 3

[cluster]
method = "fuzzy-c-means"
k = 4
m = 1.7
tol = "none"
max_iter = 12
init = "box"
participation = 0.5
quorum = 0.8
small_sites = "paper"
seed = 9

[privacy]
aggregation = "plain"

[sites.cleveland]
source = "data/cleveland.csv"
policy = "nhs"

[sites."San Diego"]
source = { sql = "SELECT * FROM t", database = "sd.duckdb" }
"""
SHORT = 'name = "x"\n[cluster]\nmethod = "k-means"\nk = 2\n[sites.a]\nsource = "a.csv"\n'


def study(text=SHORT):
    return parse_study(text, folder=Path("/home/me"))


def test_every_key_reaches_the_estimator_and_the_sites():
    full = study(FULL)
    model = full.make_estimator(["age", "bp"])
    assert isinstance(model, fc.FuzzyCMeans)
    assert model.get_params() == {
        "n_clusters": 4,
        "m": 1.7,
        "tol": None,
        "max_iter": 12,
        "init": "box",
        "n_init": "auto",
        "participation": 0.5,
        "quorum": 0.8,
        "small_sites": "paper",
        "random_state": 9,
        "scale": "minmax",
        "missing": "refuse",
        "bounds": [(0.0, 120.0), (0.0, 300.0)],
    }
    assert (full.name, full.columns, full.id, full.seed, full.split) == ("heart", ("age", "bp"), "who", 3, "rows")
    cleveland, san_diego = full.sites
    assert (cleveland.name, cleveland.source, cleveland.policy) == (
        "cleveland",
        Path("/home/me/data/cleveland.csv"),
        "nhs",
    )
    assert san_diego.name == "San Diego"
    assert san_diego.source == {"sql": "SELECT * FROM t", "database": "/home/me/sd.duckdb"}


def test_a_study_in_one_process_names_packages_whose_questions_its_sites_answer():
    named = study(SHORT + 'policy = "nhs"\npackages = ["our_methods"]\n').sites[0].rules
    assert named.packages == {"fedclust", "our_methods"}
    assert named.min_cell == 10
    assert study(SHORT + 'policy = "nhs"\n').sites[0].rules.packages == {"fedclust"}
    assert study(SHORT + 'packages = ["our_methods"]\n').sites[0].rules.packages is None  # "none" answers everybody


ELSEWHERE = {"n_clusters", "n_components", "random_state", "bounds", "missing", "scale"}  # k, seed, and keys at the top


@pytest.mark.parametrize("method", study_methods())
def test_every_parameter_of_a_method_has_a_key(method):
    record = study_methods()[method]
    elsewhere = ELSEWHERE | ({"opening", "floor"} if method == "k-means" else set())  # keys of [privacy]
    assert set(record.estimator().get_params()) - elsewhere == set(record.parameters) <= set(study_keys.cluster_keys())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gaussian-mixture", {"family": "EEE"}),
        ("averaged-fuzzy-c-means", {"average": "index", "local_tol": 0.01, "m": 1.5}),
        ("gradient-fuzzy-c-means", {"step": 0.01, "local_rounds": 3, "m": 1.5}),
        ("k-fed", {"local_clusters": 4, "min_rows": 7}),
        ("mufc", {"local_clusters": 4, "min_rows": 7, "step": 0.1}),
    ],
)
def test_a_methods_own_parameters_reach_it(method, options):
    lines = "".join(f"{name} = {value!r}\n" for name, value in options.items())
    model = study(SHORT.replace('"k-means"\n', f'"{method}"\n{lines}')).make_estimator()
    assert {name: model.get_params()[name] for name in options} == options


@pytest.mark.parametrize("line", ['family = "XYZ"', "step = 0", "local_tol = -1", "local_rounds = 1.5", "min_rows = 1"])
def test_a_methods_own_parameters_must_make_sense(line):
    with pytest.raises(fc.StudyError, match="it must be"):
        study(SHORT.replace("k = 2", f"k = 2\n{line}"))


def test_a_number_of_clusters_that_is_left_out_is_chosen():
    left_out = study(SHORT.replace("k = 2\n", ""))
    assert left_out.cluster == study(SHORT.replace("k = 2", 'k = "auto"')).cluster
    assert left_out.cluster.choice is not None
    centers = study(SHORT.replace("k = 2", "init = [[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]]"))
    assert (centers.cluster.k, centers.cluster.choice) == (3, None)


def test_what_is_left_out_keeps_the_estimators_defaults():
    assert study().make_estimator().get_params() == fc.KMeans(2, opening="floored").get_params()
    fuzzy = study(SHORT.replace("k-means", "fuzzy-c-means"))
    assert fuzzy.make_estimator().get_params() == fc.FuzzyCMeans(2).get_params()


def test_sums_are_opened_above_a_floor_unless_the_study_cannot_or_says_otherwise():
    def opening(text="", cluster="", top=""):
        found = study(top + SHORT.replace("k = 2", f"k = 2\n{cluster}") + text).make_estimator()
        return found.opening, found.floor

    assert opening() == ("floored", 10)
    assert opening("[privacy]\nfloor = 15\n") == ("floored", 15)
    assert opening('[privacy]\nopening = "exact"\n') == ("exact", 10)
    assert opening(top='split = "columns"\n') == ("exact", 10)
    assert opening(top='missing = "partial"\n') == ("exact", 10)
    assert opening(cluster="participation = 0.5") == ("exact", 10)
    assert opening(cluster="quorum = 1") == ("exact", 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('method = "fuzzy-c-means"\nk = 2\n[privacy]\nopening = "floored"', "opens every sum"),
        ('method = "k-means"\nk = 2\nquorum = 1\n[privacy]\nopening = "floored"', "quorum in .cluster. is set"),
        ('method = "k-means"\nk = 2\n[privacy]\nopening = "exact"\nfloor = 12', "leave floor out"),
        ('method = "k-means"\nk = 2\n[privacy]\nfloor = 1', "whole number from 2"),
    ],
)
def test_an_opening_that_does_not_fit_the_study_is_refused(text, said):
    with pytest.raises(fc.StudyError, match=said):
        study(f'name = "s"\n[cluster]\n{text}\n[sites.a]\nsource = "a.csv"\n')


def test_the_studys_seed_is_the_methods_unless_it_has_its_own():
    assert study(f"seed = 5\n{SHORT}").make_estimator().random_state == 5
    assert study(f"seed = 5\n{SHORT}".replace("k = 2", "k = 2\nseed = 6")).make_estimator().random_state == 6


def test_addresses_and_absolute_paths_stay_as_they_are():
    assert study(SHORT.replace("a.csv", "/data/a.csv")).sites[0].source == Path("/data/a.csv")
    sql = '{ sql = "SELECT 1", database = "postgresql://h/d" }'
    assert study(SHORT.replace('"a.csv"', sql)).sites[0].source["database"] == "postgresql://h/d"


def test_paths_start_where_the_study_lies(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.csv").write_text("u,v\n0,1\n4,5\n")
    (tmp_path / "here" / "study.toml").write_text(SHORT)
    monkeypatch.chdir(tmp_path)
    fed = read_study("here/study.toml").open_federation()
    assert (fed.parties, fed.columns) == (("a",), ("u", "v"))


def test_a_byte_order_mark_is_no_fault(tmp_path):
    (tmp_path / "study.toml").write_bytes(b"\xef\xbb\xbf" + SHORT.encode())
    assert read_study(tmp_path / "study.toml").name == "x"


def test_a_column_split_names_each_sites_columns(tmp_path):
    (tmp_path / "a.csv").write_text("who,u,rest\n1,0,9\n2,4,9\n")
    (tmp_path / "b.csv").write_text("who,v\n2,5\n1,1\n")
    text = SHORT.replace("[cluster]", 'split = "columns"\nid = "who"\n[cluster]').replace(
        '"a.csv"', '"a.csv"\ncolumns = ["u"]'
    )
    with pytest.raises(fc.StudyError, match=r"columns in \[sites.b\] names 'v' 2 times"):
        parse_study(text + '[sites.b]\nsource = "b.csv"\ncolumns = ["v", "v"]\n', folder=tmp_path)
    fed = parse_study(text + '[sites.b]\nsource = "b.csv"\ncolumns = ["v"]\n', folder=tmp_path).open_federation()
    assert fed.columns == ("u", "v")
    assert [next(iter(h.source.blocks())).tolist() for h in fed.site_data.values()] == [[[0.0, 4.0]], [[1.0, 5.0]]]


def test_explicit_centres_are_given_row_by_row():
    model = study(SHORT.replace("k = 2", "k = 2\ninit = [[1, 2], [3, 4.5]]")).make_estimator()
    assert np.asarray(model.init).tolist() == [[1.0, 2.0], [3.0, 4.5]]


def test_numbers_too_large_for_a_float_are_refused():
    with pytest.raises(fc.StudyError, match="a number of at least 0"):
        study(SHORT.replace("k = 2", f"k = 2\ntol = {10**400}"))


def test_files_that_sql_names_lie_where_the_study_lies(tmp_path, monkeypatch):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "rows.csv").write_text("a\n1\n2\n3\n")
    text = """name = "s"
[cluster]
method = "k-means"
k = 2
[sites.here]
source = { sql = "SELECT * FROM 'rows.csv'" }
"""
    monkeypatch.chdir(tmp_path)
    fed = parse_study(text, folder=tmp_path / "study").open_federation()
    assert fed.site_data["here"].survey.rows == 3


@pytest.mark.parametrize("scale", ["damped", "range", "standardise"])
def test_a_study_may_name_the_scales_that_only_summary_clustering_has(scale):
    text = SHORT.replace('method = "k-means"\nk = 2', 'method = "summary-clustering"')
    assert study(f'scale = "{scale}"\n{text}').make_estimator().scale == scale
    assert study(text).make_estimator().scale == "damped"
    if scale != "standardise":
        with pytest.raises(fc.FedclustError, match=f"scale is '{scale}'; choose one of none, minmax, standardise"):
            study(f'scale = "{scale}"\n{SHORT}').make_estimator().fit(np.zeros((20, 2)))
