"""Real runs attacked: plain ones must fall, or the attacks are no good; masked ones must not."""

import numpy as np
import pytest

import fedclust as fc
from benchmarks import attack_suite as table
from fedclust.app.audit.observer_record import record_federation
from fedclust.privacy import attacks

MASKED = ("secure", "blind")


def outcome(mode, **changes):
    settings = {"bed": "small", "sites": 4, "rows": 25, "k": 4, "columns": 4, "rounds": 10, "seed": 5} | changes
    return table.attacked(table.Case(**settings), mode)


def test_plain_runs_lose_rows_to_differencing_and_to_the_rule_that_hides_lone_rows():
    found = outcome("plain", paper=True, leave_one_out=True)
    assert found.exact["a"] > 0
    assert found.exact["a2"] > 0
    assert found.exact["a3"] > 0
    assert found.sums["d"] == table.LEFT_OUT
    assert outcome("plain").exact["a3 at a site"] > 0


@pytest.mark.parametrize("mode", MASKED)
def test_masked_runs_show_no_site_of_its_own(mode):
    found = outcome(mode, paper=True, leave_one_out=True)
    assert [found.exact[name] + found.nearly[name] for name in ("a", "a2", "d")] == [0, 0, 0]
    assert found.sums["d"] == 0


def test_secure_runs_keep_their_global_sums_in_sight_and_blind_ones_do_not():
    assert outcome("secure").exact["a3"] > 0
    found = outcome("blind")
    assert found.exact["a3"] == 0
    assert found.exact["a3 at the lead site"] > 0  # a site that leads sees them


def test_without_rules_on_cohorts_leaving_a_site_out_shows_its_sums_even_masked():
    assert outcome("secure", leave_one_out=True, ruled=False).sums["d"] == table.LEFT_OUT


@pytest.mark.parametrize(("mode", "own", "joint"), [("plain", 12, 12), ("secure", 0, 12), ("blind", 0, 0)])
def test_fuzzy_sums_of_tiny_tables_are_solved_wherever_they_are_seen(mode, own, joint):
    found = outcome(mode, sites=3, rows=4, k=3, rounds=6, m=2.0)
    assert (found.exact["b"], found.exact["b on sums over all sites"]) == (own, joint)


def test_distances_over_columns_unfold():
    X = np.random.default_rng(0).normal(size=(40, 6))
    fed = fc.Federation.local({"a": X[:, :3], "b": X[:, 3:]}, split="columns")
    recording = record_federation(fed)
    fc.FuzzyCMeans(3, init="box", tol=None, max_iter=8).fit(fed)
    whole = next(one for one in attacks.attack_by_unfolding(recording.coordinator_view()) if one.parties == ("a", "b"))
    np.testing.assert_allclose(attacks.complete_rows(whole, X[:7], np.arange(7)), X, atol=1e-6)


def test_the_table_names_every_attack_in_every_mode():
    done = [outcome(mode, rounds=3) for mode in table.MODES]
    text = table.table({"results": list(table._summed(done))})
    assert text.startswith("| runs | attack | plain | secure | blind |")
    assert "| small | a3 at a site |" in text


@pytest.mark.slow
def test_large_plain_runs_fall_and_masked_ones_lose_no_row_by_site():
    big = {"sites": 20, "rows": 200, "columns": 17, "rounds": 30}
    # How many rows move depends on the table: with three clear groups about half of the sites lose one.
    three = [outcome("plain", **big, k=3, seed=seed, spread=0.0, wide=False) for seed in range(3)]
    ten = [outcome("plain", **big, k=10, seed=seed) for seed in range(3)]
    assert np.mean([o.losers["a"] / o.sites for o in three]) >= 0.77
    assert np.mean([o.losers["a"] / o.sites for o in ten]) >= 0.91
    assert np.mean([o.exact["a3"] > 0 for o in ten]) >= 0.5
    hidden = [outcome("plain", **big | {"rows": 50}, k=10, seed=seed, paper=True) for seed in range(3)]
    assert np.mean([o.exact["a2"] for o in hidden]) >= 32.5
    for mode in MASKED:
        assert outcome(mode, **big, k=10).exact["a"] == 0


def test_nodes_of_fcac_are_rows_and_summaries_are_not():
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=(150, 3)) + at for name, at in (("a", 0), ("b", 4))}
    found = {}
    for kind in (fc.FCAC, fc.SummaryClustering):
        fed = fc.Federation.local(parts)
        recording = record_federation(fed)
        kind().fit(fed)
        found[kind] = attacks.score(attacks.attack_shown_points(recording.coordinator_view()), parts).exact
    assert found[fc.FCAC] > 50
    assert found[fc.SummaryClustering] == 0
