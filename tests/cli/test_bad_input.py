"""Every way a study or its data can be wrong, through the command itself."""

import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cli_user import csv, rows

SECRET = 987654.321  # a value of a row; no message may show it
COLUMNS = ["age", "bp", "chol"]


def spoiled(value, row=3):
    data = np.c_[rows(3), np.full(40, SECRET)]
    data[row, 0] = value
    return data


def file(name, content):
    return lambda user: user.write(name, content)


def change(*changes):
    return lambda user: user.study(*changes)


def cluster(line):
    return change(("k = 3", f"k = 3\n{line}"))


def text_column(user):
    user.write("hungary.csv", f"age,bp,chol\nyoung,{SECRET},1\nold,{SECRET},2\n")


def no_parquet(user):
    user.write("hungary.parquet", f"not a Parquet file, but {SECRET}")
    user.study(("hungary.csv", "hungary.parquet"))


def text_in_parquet(user):
    table = pa.table({"age": ["young", "old"], "bp": [SECRET, SECRET]})
    pa.parquet.write_table(table, user.folder / "hungary.parquet")
    user.study(("hungary.csv", "hungary.parquet"))


def columns_differ(user):
    user.write("hungary.csv", csv(["age", "pressure", "chol"], spoiled(1.0)))
    user.study(('columns = ["age", "bp"]\n', ""))


def few_rows(user):
    user.write("cleveland.csv", csv(COLUMNS, spoiled(1.0)[:1]))
    user.write("hungary.csv", csv(COLUMNS, spoiled(1.0)[:1]))


def ids_by(split):
    def bad(user):
        user.write("cleveland.csv", csv(["who", "age"], [[7, SECRET], [7, 2.0], [8, 3.0], [9, 4.0]]))
        user.write("hungary.csv", csv(["who", "bp" if split == "columns" else "age"], [[i, 1.0] for i in range(4)]))
        user.study(('columns = ["age", "bp"]', f'split = "{split}"\nid = "who"'))

    return bad


def other_rows(user):
    user.write("cleveland.csv", csv(["who", "age"], [[i, SECRET] for i in range(6)]))
    user.write("hungary.csv", csv(["who", "bp"], [[i, 1.0] for i in range(1, 7)]))
    user.study(('columns = ["age", "bp"]', 'split = "columns"\nid = "who"'))


def too_small_for_policy(user):
    user.write("hungary.csv", csv(COLUMNS, spoiled(1.0)[:9]))
    third = '[sites.zurich]\nsource = "cleveland.csv"\n'
    user.study(('source = "hungary.csv"', f'source = "hungary.csv"\npolicy = "nhs"\n{third}'))


def over_columns(*policies):
    """As many sites as there are policies, each with a column of the same rows."""

    def bad(user):
        sites = ""
        for place, policy in enumerate(policies):
            user.write(f"site{place}.csv", csv([f"c{place}"], spoiled(1.0)[:, :1]))
            sites += f'[sites.s{place}]\nsource = "site{place}.csv"\npolicy = "{policy}"\n'
        user.study(text=f'name = "joint"\nsplit = "columns"\n[cluster]\nmethod = "k-means"\nk = 2\n{sites}')

    return bad


def no_row_left(user):
    gaps = "age,bp,chol\n" + "1,,3\n,2,3\n" * 9
    user.write("cleveland.csv", gaps)
    user.write("hungary.csv", gaps)
    user.study(("[cluster]", 'missing = "drop"\n[cluster]'))


def unknown_database(user):
    user.study(('"hungary.csv"', '{ sql = "SELECT 1", database = "postgresql://me:s3cret@127.0.0.1:1/x" }'))


BAD = {
    "missing study file": (lambda u: (u.folder / "study.toml").unlink(), "there is no study at study.toml"),
    "study in latin-1": (lambda u: (u.folder / "study.toml").write_bytes(b'name = "M\xe9"'), "not UTF-8"),
    "bad TOML": (change(('"heart"', "heart")), "line 1 of study.toml is not TOML"),
    "unclosed TOML": (change(('"bp"]', '"bp"')), "close it"),
    "key given twice": (cluster("k = 4"), "'cluster.k' is given twice (line 7"),
    "two sites of one name": (change(("[sites.hungary]", "[sites.cleveland]")), "two sites are called 'cleveland'"),
    "two sites of one name, inline": (
        lambda u: u.study(
            text='name = "x"\n[cluster]\nmethod="k-means"\nk=1\n[sites]\na = {source="a.csv"}\na = {source="b.csv"}\n'
        ),
        "two sites are called 'a'",
    ),
    "unknown key": (change(("columns", "colums")), "has no key 'colums'; did you mean 'columns'?"),
    "unknown key in [cluster]": (cluster("max_ite = 3"), "has no key 'max_ite'; did you mean 'max_iter'?"),
    "unknown key in a site": (change(("source = ", "sources = ")), "[sites.cleveland] has no key 'sources'"),
    "key in the wrong table": (cluster('scale = "none"'), "move it to the top"),
    "no name": (change(('name = "heart"\n', "")), "lacks a name"),
    "name with a slash": (change(('"heart"', '"../heart"')), "without '/'"),
    "no sites": (lambda u: u.study(text='name="x"\n[cluster]\nmethod="k-means"\nk=2\n'), "lacks its sites"),
    "no cluster": (lambda u: u.study(text='name="x"\n[sites.a]\nsource="a.csv"\n'), "lacks a [cluster] table"),
    "no k with epsilon": (
        change(("k = 3", ""), ("fuzzy-c-means", "k-means"), ("[cluster]", "[privacy]\nepsilon = 1.0\n[cluster]")),
        "has no k, which is needed with epsilon",
    ),
    "no source": (change(('source = "hungary.csv"', "")), "[sites.hungary] has no source"),
    "unknown method": (change(("fuzzy-c-means", "fuzy-c-means")), "did you mean 'fuzzy-c-means'?"),
    "k < 1": (change(("k = 3", "k = 0")), "k in [cluster] is 0; it must be a whole number of at least 1"),
    "k a text": (change(("k = 3", 'k = "3"')), "whole number"),
    "k true": (change(("k = 3", "k = true")), "whole number"),
    "k a range upside down": (change(("k = 3", 'k = "8..2"')), "a range such as '2..8', or 'auto'"),
    "k up to more than there are rows": (change(("k = 3", 'k = "2..99"')), "80 rows in total, fewer than k = 99"),
    "an index without a choice": (cluster('index = "xie-beni"'), "says how to choose k, but k is 3"),
    "an unknown index": (change(("k = 3", 'k = "2..4"\nindex = "xie-bini"')), "did you mean 'xie-beni'?"),
    "a rule without an index": (
        change(("k = 3", 'k = "auto"\ncriterion = "evidence"\nrule = "min"')),
        "does not use index or rule",
    ),
    "restarts without an index": (
        change(("k = 3", 'k = "auto"\nrestarts = 2')),
        'restarts in [cluster] needs criterion = "index"',
    ),
    "a choice with centres": (change(("k = 3", 'k = "auto"\ninit = [[1, 2], [3, 4]]')), "k is not a number"),
    "m <= 1": (cluster("m = 1"), "m in [cluster] is 1; it must be a number above 1"),
    "m not finite": (cluster("m = inf"), "number above 1"),
    "m for hard clusters": (change(("fuzzy-c-means", "k-means"), ("k = 3", "k = 3\nm = 2")), "has no setting m"),
    "tol below 0": (cluster("tol = -1"), "at least 0, or 'none'"),
    "max_iter 0": (cluster("max_iter = 0"), "at least 1"),
    "participation 0": (cluster("participation = 0"), "above 0 and at most 1"),
    "quorum 0": (cluster("quorum = 0"), "a share such as 0.8"),
    "quorum of more sites": (cluster("quorum = 5"), "quorum in [cluster] is 5, but the study has 2 sites"),
    "a column twice": (change(('"age", "bp"', '"age", "bp", "age"')), "columns names 'age' 2 times; name it once"),
    "start unknown": (cluster('init = "carefull"'), "did you mean 'careful'?"),
    "start too short": (cluster("init = [[1, 2], [3, 4]]"), "2 centres, but k is 3"),
    "start too narrow": (cluster("init = [[1], [3], [5]]"), "have 1 number each, but there are 2 columns"),
    "start ragged": (cluster("init = [[1, 2], [3], [5, 6]]"), "a list of centres"),
    "seed negative": (cluster("seed = -1"), "from 0 to 4294967295"),
    "scale unknown": (change(("[cluster]", 'scale = "standardize"\n[cluster]')), "did you mean 'standardise'?"),
    "scale without bounds": (change(("[cluster]", 'scale = "minmax"\n[cluster]')), "needs public bounds"),
    "bounds upside down": (change(("[cluster]", "bounds = [5, 1]\n[cluster]")), "low <= high"),
    "bounds too few": (change(("[cluster]", "bounds = { age = [0, 1] }\n[cluster]")), "has no pair for column 'bp'"),
    "rows beyond bounds": (change(("[cluster]", "bounds = [0, 1]\n[cluster]")), "bounds"),
    "missing unknown": (change(("[cluster]", 'missing = "guess"\n[cluster]')), "one of 'refuse', 'drop', 'partial'"),
    "secure aggregation": (
        change(("[cluster]", '[privacy]\naggregation = "secure"\n[cluster]')),
        "at least three sites",
    ),
    "policy unknown": (change(('"hungary.csv"', '"hungary.csv"\npolicy = "nsh"')), "did you mean 'nhs'?"),
    "policy keeps a site out": (too_small_for_policy, "site 'hungary' has fewer than the 10 rows"),
    "policy asks for more sites": (
        change(('source = "hungary.csv"', 'source = "hungary.csv"\npolicy = "standard"')),
        "'standard' of site 'hungary' requires sums over at least 3 sites, but the study has 2",
    ),
    "policy asks for more sites, over columns": (over_columns("standard", "none"), "over at least 3 sites"),
    "policy keeps distances in": (
        over_columns("none", "none", "datashield"),
        "'datashield' of site 's2' does not let the distances of all rows leave unmasked",
    ),
    "no row left": (no_row_left, "every row has missing values and was left out"),
    "no header": (file("hungary.csv", f"{SECRET},2,3\n1,2,3\n"), "holds numbers instead of column names"),
    "columns of a site in a row split": (
        change(('"hungary.csv"', '"hungary.csv"\ncolumns = ["bp"]')),
        'needs split = "columns"',
    ),
    "missing file": (change(("hungary.csv", "hungry.csv")), "does not exist: hungry.csv"),
    "not a Parquet file": (no_parquet, "hungary.parquet of site 'hungary' cannot be read as Parquet"),
    "file of another kind": (change(("hungary.csv", "study.toml")), ".csv or .parquet"),
    "no such column": (change(('"age", "bp"', '"agee", "bp"')), "no column 'agee'; did you mean 'age'?"),
    "a text column": (text_column, "column 'age' of site 'hungary' holds text"),
    "a text column in Parquet": (text_in_parquet, "column 'age' of site 'hungary' holds text"),
    "NaN": (file("hungary.csv", csv(COLUMNS, spoiled(np.nan))), "'age' of site 'hungary' holds 1 missing value"),
    "infinity": (file("hungary.csv", csv(COLUMNS, spoiled(np.inf))), "'age' of site 'hungary' holds 1 infinite value"),
    "a site with no rows": (file("hungary.csv", "age,bp,chol\n"), "site 'hungary' has no rows"),
    "an empty file": (file("hungary.csv", ""), "is empty"),
    "fewer rows than clusters": (few_rows, "the sites have 2 rows in total, fewer than k = 3"),
    "duplicate ids over rows": (ids_by("rows"), "id column 'who' of site 'cleveland' repeats an earlier id in 1 of"),
    "duplicate ids over columns": (ids_by("columns"), "id column 'who' of site 'cleveland' repeats an earlier id"),
    "ids that do not match": (other_rows, "rows"),
    "sites whose columns differ": (columns_differ, "have different columns (bp, pressure)"),
    "a database that is not there": (unknown_database, "hungary"),
    "a source with an unknown key": (change(('"hungary.csv"', '{ sqll = "SELECT 1" }')), "'sqll'"),
}


def refused(code, out, err):
    assert (code, out) == (2, "")
    assert re.fullmatch(r"fedclust: [^\n]+\n", err), "one line"
    assert "Traceback" not in err
    assert str(SECRET).split(".")[0] not in err
    assert "s3cret" not in err


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(user, name):
    spoil, words = BAD[name]
    spoil(user)
    before = sorted(path.name for path in user.folder.iterdir())
    code, out, err = user("run", "study.toml")
    refused(code, out, err)
    assert words in err
    assert sorted(path.name for path in user.folder.iterdir()) == before


@pytest.mark.parametrize("name", ["NaN", "two sites of one name"])
def test_bad_input_in_a_process_of_its_own(user, name):
    BAD[name][0](user)
    done = subprocess.run(
        [sys.executable, "-m", "fedclust.cli.main", "run", "study.toml", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(done.returncode, done.stdout, done.stderr)
    assert not (user.folder / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "STUDY"),
        (["runn"], "invalid choice: 'runn'"),
        (["run", "."], "is a folder"),
        (["resume", "nowhere"], "nowhere does not exist"),
        (["resume", "."], "is not a run folder"),
        (["export", ".", "--to", "csv"], "is not a run folder"),
        (["export", ".", "--to", "xml"], "invalid choice: 'xml'"),
        (
            ["site", "assign", "model.json", "--data", "hungary.csv", "--out", "labels.txt"],
            "is unknown; end the name in",
        ),
        (["site", "assign", "model.json", "--data", "hungary.csv", "--out", "labels.csv"], "there is no model"),
        (["site", "assign", "study.toml", "--data", "hungary.csv", "--out", "labels.csv"], "is not a saved model"),
        (["site", "assign", "model.json", "--data", "hungary.csv", "--out", "hungary.csv"], "the data file itself"),
        (
            ["site", "assign", ".", "--data", "hungary.csv", "--out", "labels.csv"],
            "is a folder; give the path of a model file",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(user, arguments, words):
    code, out, err = user(*arguments)
    refused(code, out, err)
    assert words in err


def test_constant_columns_work_and_are_noted(user):
    for site in ("cleveland", "hungary"):
        user.write(f"{site}.csv", csv(COLUMNS, np.c_[rows(4), np.full(40, 7.0)]))
    user.study(('"age", "bp"', '"age", "bp", "chol"'))
    code, out, _ = user("run", "study.toml")
    assert code == 0
    assert "These columns are constant and have no influence: chol." in out


def test_centres_that_coincide_are_told_at_the_end_and_in_the_report(user):
    names = [f"x{i}" for i in range(30)]
    rng = np.random.default_rng(0)
    for site in ("cleveland", "hungary"):
        user.write(f"{site}.csv", csv(names, rng.normal(size=(200, 30))))
    user.study(('columns = ["age", "bp"]\n', ""))
    code, out, _ = user("run", "study.toml")
    assert code == 0
    assert "Centres 0, 1 and 2 coincide" in out
    (run,) = (user.folder / "runs").iterdir()
    assert user("report", str(run))[0] == 0
    assert "Centres 0, 1 and 2 coincide" in (run / "report.html").read_text()
