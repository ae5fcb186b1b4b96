"""What a blind coordinator can count and measure is the same whatever the rows: questions, order and lengths."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

import fedclust as fc
from fedclust.app.analysis import describe
from fedclust.cli.main import main
from fedclust.core import wire
from fedclust.core.errors import WireError
from fedclust.core.journal import Journal
from fedclust.core.release import Release, additive
from fedclust.core.ring import Exact
from fedclust.privacy import padding
from fedclust.testing.faulty_engines import Recorder


def table(seed, groups, rows, apart=9.0, columns=2):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(groups, columns)) * apart
    which = rng.integers(groups, size=4 * rows)
    X = centers[which] + rng.normal(size=(4 * rows, columns))
    return {f"p{i}": X[i * rows : (i + 1) * rows] for i in range(4)}


def dealt(X):
    return {f"p{i}": X[i::4] for i in range(4)}


def skewed(rows=500):
    return np.random.default_rng(6).exponential(size=(rows, 2))


def years(X, year=2000.0):
    return {p: own + np.array([year, 0.0]) for p, own in X.items()}


TABLES = {
    "three groups": table(1, 3, 60),
    "five groups, more rows": table(2, 5, 140),
    "no groups": table(3, 1, 60),
    "groups that overlap": table(4, 4, 90, apart=2.0),
    "few distinct rows": {p: np.round(own / 4) for p, own in table(5, 3, 60).items()},
    "no Gaussians": dealt(skewed()),
    "a column of years": years(table(1, 3, 60)),
    "two columns of 0 and 1": dealt(np.random.default_rng(7).integers(2, size=(240, 2)).astype(float)),
}


@dataclass(frozen=True)
class Only(Release):
    mass: Exact = additive("a sum")


def seen_by_a_coordinator(parts, act, **how):
    fed = fc.Federation.local(parts, aggregation="blind", wire=True, **how)
    recorder = Recorder(fed.engine)
    fed.use_engine(recorder)
    act(fed)
    return recorder.exchanges


def lengths(parts, act, **how):
    """What the coordinator could measure of every exchange."""
    return [
        sorted((p, call.handler, len(call.wire_bytes), len(replies[p].wire_bytes)) for p, call in calls.items())
        for calls, replies in seen_by_a_coordinator(parts, act, **how)
    ]


def by_evidence(fed):
    fc.select_k(fc.FuzzyCMeans(max_iter=12), fed, range(2, 7))


def narrow(fed):
    fc.select_k(fc.KMeans(max_iter=6, scale="standardise"), fed, [2])


def by_index(fed):
    fc.select_k(fc.KMeans(max_iter=6), fed, range(2, 5), restarts=2, index="xie-beni")


def unnamed_range(fed):
    found = fc.select_k(fc.KMeans(max_iter=6, scale="standardise"), fed)
    assert found.range == (1, 8)


def one_fit(fed):
    fc.FuzzyCMeans(3, m=1.2, max_iter=30).fit(fed)


def hard_fit(fed):
    describe(fc.KMeans(4, max_iter=30, scale="standardise").fit(fed), fed)


def mixture(fed):
    fc.GaussianMixture(2, family="EEE", max_iter=10, scale="standardise").fit(fed)


def averaged(fed):
    fc.AveragedFuzzyCMeans(3, max_iter=5, scale="standardise").fit(fed)


def one_or_more(fed):
    found = fc.select_k(fc.KMeans(max_iter=6, scale="standardise"), fed, [1, 2, 3])
    describe(found.model, fed, found)


def same_for(act, names):
    first, *others = (lengths(TABLES[name], act) for name in names)
    for name, own in zip(names[1:], others, strict=True):
        different = next((i for i, (a, b) in enumerate(zip(first, own, strict=False)) if a != b), None)
        assert different is None, (name, different, first[different], own[different])
        assert len(first) == len(own), name


@pytest.mark.parametrize("act", [by_evidence, by_index, one_fit, hard_fit])
def test_a_blind_coordinator_measures_the_same_for_two_tables(act):
    same_for(act, ["three groups", "five groups, more rows"])


def test_what_a_search_for_k_shows_a_blind_coordinator_looks_random_filling_included():
    seen = seen_by_a_coordinator(TABLES["three groups"], narrow)
    encrypted = [
        (calls, replies) for calls, replies in seen if {c.handler for c in calls.values()} == {"blind_aggregation.add"}
    ]
    texts = {call.message.text for calls, _ in encrypted for call in calls.values()}
    sums = [reply.release.numbers.limbs.tobytes() for _, replies in encrypted for reply in replies.values()]
    for data in (b"".join(texts), b"".join(sums), b"".join(own[-320:] for own in sums)):
        counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        expected = len(data) / 256
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert expected > 100
        assert chi2 < 255 + 6 * np.sqrt(2 * 255)  # six standard deviations


@pytest.mark.parametrize("other", ["a column of years", "two columns of 0 and 1"])
@pytest.mark.parametrize("act", [hard_fit, mixture, averaged])
def test_neither_offsets_nor_rows_on_centres_show(act, other):
    same_for(act, ["three groups", other])


def test_that_there_is_one_cluster_only_does_not_show():
    same_for(one_or_more, ["three groups", "no groups"])


def test_which_number_was_chosen_does_not_show_where_columns_are_split():
    def act(fed):
        found = fc.select_k(fc.KMeans(max_iter=5), fed, [2, 3], index="xie-beni", restarts=2)
        describe(found.model, fed, found)
        chosen.append(found.k)

    chosen: list[int] = []
    seen = []
    for groups in (2, 3):
        X = np.concatenate(list(table(groups, groups, 60, apart=40.0, columns=3).values()))
        parts = {f"p{i}": X[:, [i]] for i in range(3)}
        seen.append(lengths(parts, act, split="columns"))
    assert chosen == [2, 3]
    assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "act", [by_evidence, narrow, by_index, unnamed_range, one_fit, hard_fit, mixture, averaged, one_or_more]
)
def test_a_blind_coordinator_measures_the_same_for_every_table(act):
    same_for(act, list(TABLES))


def test_where_early_stopping_may_be_seen_it_is():
    parts = TABLES["three groups"], TABLES["five groups, more rows"]
    one, other = (lengths(own, by_evidence, early_stopping=True) for own in parts)
    assert one != other


def test_the_choice_is_the_one_of_a_plain_run():
    plain, hidden = (
        fc.select_k(
            fc.FuzzyCMeans(max_iter=12, tol=None, bounds=(-80, 80)),
            fc.Federation.local(TABLES["three groups"], aggregation=how),
            range(2, 5),
        )
        for how in ("plain", "blind")
    )
    assert hidden.k == plain.k == 3
    assert (hidden.model.cluster_centers_ == plain.model.cluster_centers_).all()
    assert hidden.scores == plain.scores


def test_a_text_that_was_filled_up_comes_back_and_another_is_refused():
    for text in (b"a", b"abc", bytes(7)):
        assert padding.unpad_text(padding.pad_text(text, 100)) == text
        assert len(padding.pad_text(text, 100)) == 104
    for wrong in (b"", b"\x01", b"\x05\0\0\0abc", b"\x01\0\0\0abc"):
        with pytest.raises(WireError):
            padding.unpad_text(wrong)


def test_room_only_grows():
    room = padding.Padding(10, 2, 5).cover_both(padding.Padding(3, 7, 5))
    assert room == padding.Padding(10, 7, 5)
    assert wire.decode(padding.Padding, wire.encode(room)) == room


@pytest.mark.slow
def test_a_whole_run_with_its_report_shows_a_blind_coordinator_the_same(tmp_path):
    found = []
    for name in ("three groups", "five groups, more rows"):
        folder = tmp_path / name.split(maxsplit=1)[0]
        folder.mkdir()
        text = 'name = "even"\ncolumns = ["x", "y"]\nscale = "standardise"\n[cluster]\nmethod = "fuzzy-c-means"\n'
        text += 'k = "2..6"\nmax_iter = 15\n[privacy]\naggregation = "blind"\n'
        for party, rows in TABLES[name].items():
            np.savetxt(folder / f"{party}.csv", rows, delimiter=",", header="x,y", comments="")
            text += f'[sites.{party}]\nsource = "{party}.csv"\n'
        (folder / "study.toml").write_text(text)
        assert main(["run", str(folder / "study.toml"), "--out", str(folder / "run")]) == 0
        journal = Journal(folder / "run" / "coordinator" / "journal")
        records = {at: len(journal.recall(*at)) for at in journal._payload_places}
        journal.close()
        found.append((records, json.loads((folder / "run" / "model.json").read_text())["parameters"]["n_clusters"]))
    (one, k_one), (other, k_other) = found
    assert one == other
    assert k_one != k_other  # and yet nothing differs


@pytest.mark.parametrize(
    ("sizes", "units"),
    [
        ({"mass": [-2, -3]}, ["mass"]),
        ({"mass": [1 << 40]}, ["mass"]),
        ({"other": [2]}, ["other"]),
        ({"mass": [2]}, []),
        ({}, []),
    ],
)
def test_a_shape_that_is_not_that_of_its_numbers_is_refused_before_memory_is_taken(sizes, units):
    wrong = padding.Shapes(
        {name: np.array(size, np.int64) for name, size in sizes.items()}, {n: np.zeros((), np.int32) for n in units}
    )
    with pytest.raises(WireError, match="does not match how many numbers it has"):
        padding.empty_release(Only, wrong, max_numbers=100)
    right = padding.Shapes({"mass": np.array([2, 3])}, {"mass": np.zeros((), np.int32)})
    assert padding.empty_release(Only, right, max_numbers=6).mass.shape == (2, 3)
