"""Every question of a served study is held to the study; honest studies of all kinds pass."""

from dataclasses import replace

import numpy as np
import pytest

import second_audit_programs as programs
from fedclust.app.serve import import_questions
from fedclust.app.study import parse_study
from fedclust.app.study_promises import study_terms
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import REMEDIES
from fedclust.core.errors import QuorumLost
from fedclust.core.handler_checks import check_contract_is_given
from fedclust.core.study_terms import never_in_study
from fedclust.site.contract_guard import is_in_study
from fedclust.site.run_agreements import RunAgreements
from forger import forged
from served_study import ServedStudy, run_honestly

import_questions()
OWN = sorted(name for name, own in HANDLERS.items() if own.package == "fedclust")
OPEN = "max_ratio = 0\nmin_cell = 1\nmax_share = 0\npoints = true\n"  # rules of numbers aside, contracts decide
PLAIN, SECURE = 'aggregation = "plain"', 'aggregation = "secure"'
FREE = {  # what a study leaves to the coordinator, because it follows from answers
    ("column_split.measure_distances", "start"),
    ("column_split.measure_distances", "stop"),
    ("column_split.apply_weights", "start"),
    ("column_split.apply_weights", "first"),
    ("column_split.apply_weights", "last"),
    ("column_split.apply_weights", "reseed"),
    ("cluster_indices_columns.keep_means", "start"),
    ("cluster_indices_columns.keep_means", "first"),
    ("cluster_indices_columns.keep_means", "last"),
    ("cluster_indices_columns.mean_distances", "start"),
    ("column_labels.split_distances", "span.start"),
    ("column_labels.split_distances", "span.stop"),
    ("column_labels.enter_comparison", "span.start"),
    ("column_labels.enter_comparison", "span.stop"),
    ("column_labels.move_to_label_means", "labels"),  # whose number the handler compares with its rows
    ("private_fit.cluster_offsets", "reach"),  # noise is paid for whatever these are
    ("private_fit.second_moments", "radius"),
    ("component_questions.shell_histograms", "high"),
    ("summaries.summarise_rows", "fresh"),
    ("summaries.summarise_rows", "damped"),
    ("site_nets.learn_rows", "fresh"),
}


@pytest.mark.parametrize("name", OWN)
def test_every_question_of_fedclust_has_a_contract(name):
    assert HANDLERS[name].contract is not None


def test_a_question_of_fedclust_without_a_contract_cannot_be_registered():
    with pytest.raises(TypeError, match="has no contract"):
        check_contract_is_given(replace(HANDLERS["bounds.count_rows"], contract=None))


def test_a_question_without_a_contract_is_refused():
    terms = study_terms(parse_study(programs.CATEGORIES, folder=None, served=True), ["age", "bp", "kind=a"])
    own = replace(HANDLERS["roster.offer"], contract=None)
    assert not is_in_study(terms, RunAgreements(), own, "1-study", own.message("lasting-1"))


def test_the_refusal_is_explained():
    assert "does not ask this question" in REMEDIES["not-in-study"]


def test_questions_of_deep_methods_belong_to_no_study():
    names = [name for name, own in HANDLERS.items() if own.contract is never_in_study]
    assert {name.partition(".")[0] for name in names} >= {"fedcref_site", "private_site", "feature_selection"}


def row_study(folder, cluster, top="", privacy=SECURE, *, count=60, gaps=False, policy="", profile="standard"):
    sites = programs.three_sites(0, count, 3)
    if gaps:
        rng = np.random.default_rng(3)
        for rows in sites.values():
            rows[rng.random(rows.shape) < 0.1] = np.nan
    return ServedStudy.open(
        folder, sites, cluster=cluster, top=top, privacy=privacy, profile=profile, policy_lines=OPEN + policy
    )


def column_study(folder, cluster, mode="secure"):
    return programs.open_column_study(folder, 0, cluster=cluster, mode=mode, profile="standard", policy_lines=OPEN)


ROUNDS = "max_iter = 4"
WITHHELD = "withheld = []\n"
HONEST = {
    "k-means": ('method = "k-means"\nk = 3', 'scale = "standardise"', SECURE, {}),
    "k-means that opens every sum": ('method = "k-means"\nk = 3', "", f'{SECURE}\nopening = "exact"', {}),
    "fuzzy c-means with gaps": ('method = "fuzzy-c-means"\nk = 3', 'missing = "partial"', SECURE, {"gaps": True}),
    "a mixture": ('method = "gaussian-mixture"\nk = 3\nfamily = "EEE"', 'scale = "standardise"', SECURE, {}),
    "K by evidence": ('method = "k-means"\nk = "2..5"', "", SECURE, {}),
    "K by an index": (
        f'method = "fuzzy-c-means"\nk = "2..3"\ncriterion = "index"\nrestarts = 2\n{ROUNDS}', "", SECURE, {},
    ),
    "k-FED": ('method = "k-fed"\nk = 3\nlocal_clusters = 4', 'missing = "drop"', SECURE, {"gaps": True}),
    "MUFC": ('method = "mufc"\nk = 3\nstep = 0.03', "bounds = [-100, 100]", SECURE, {}),
    "summaries": ('method = "summary-clustering"', 'scale = "damped"', SECURE, {}),
    "epsilon": ('method = "k-means"\nk = 3', 'bounds = [-10, 25]\nscale = "minmax"', f"{SECURE}\nepsilon = 2.0", {}),
}  # fmt: skip
LONG = {
    f"{method} from {init} with {gaps}": (
        f'method = "{method}"\nk = 3\ninit = "{init}"',
        f'scale = "{scale}"\nmissing = "{gaps}"',
        PLAIN if init in ("careful", "party") else SECURE,
        {"gaps": gaps != "refuse"},
    )
    for method in ("k-means", "fuzzy-c-means", "gaussian-mixture")
    for init in ("k-means++", "random", "careful", "party", "box")
    for gaps in ("refuse", "drop", "partial")
    for scale in ("none", "standardise")
    if gaps != "partial" or (method != "gaussian-mixture" and init != "party")
}
LONG |= {
    f"{method}, {more}": (f'method = "{method}"\n{more}', top, privacy, options)
    for method in ("k-means", "fuzzy-c-means", "gaussian-mixture")
    for more, top, privacy, options in (
        ('k = "auto"', "", SECURE, {}),
        ('k = "auto"\ncriterion = "index"\nrestarts = 2', 'scale = "standardise"', SECURE, {}),
        ('k = "2..4"', 'missing = "drop"', SECURE, {"gaps": True}),
        ('k = 3\ninit = "box"\nn_init = 4', "", SECURE, {}),
        ("k = 2\ninit = [[0.0, 0.0, 0.0], [400.0, 5.0, 5.0]]", 'scale = "standardise"', SECURE, {}),
        ("k = 3", 'bounds = [-100, 100]\nscale = "minmax"', SECURE, {}),
        ("k = 12\nmax_iter = 5", "", SECURE, {"count": 200}),
        ("k = 3\nquorum = 0.7", "", SECURE, {"policy": "groups = true\ncohort_gap = 0\none_cohort = false\n"}),
    )
}
LONG |= {
    f"{method} {scale}": (f'method = "{method}"{k}', f'scale = "{scale}"', mode, {"policy": WITHHELD})
    for method, k in (
        ("fcac", ""),
        ("averaged-fuzzy-c-means", "\nk = 3"),
        ("gradient-fuzzy-c-means", "\nk = 3"),
        ("k-fed", "\nk = 3"),
        ("mufc", "\nk = 3"),
    )
    for scale in ("none", "standardise")
    for mode in (PLAIN, SECURE)
}
LONG |= {
    f"epsilon, {method}, {k}, {mode}": (
        f'method = "{method}"\nk = {k}', "bounds = [-10, 25]", f"{mode}\nepsilon = 2.0", {},
    )
    for method in ("k-means", "fuzzy-c-means")
    for k in ("3", "6", '"2..5"')
    for mode in (PLAIN, SECURE)
}  # fmt: skip
REASON = REMEDIES["not-in-study"]


@pytest.mark.parametrize("name", [*HONEST, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_no_question_of_an_honest_row_split_is_refused(tmp_path, name):
    cluster, top, privacy, options = {**HONEST, **LONG}[name]
    with row_study(tmp_path, cluster, top, privacy, **options) as served:
        try:
            refused = run_honestly(served)
        except Exception:
            refused = [reason for session in served.sessions.values() for reason in session.refusals]
    assert REASON not in refused


COLUMNS = {
    "distances": 'method = "fuzzy-c-means"\nk = 3\ninit = "box"',
    "k-means++": 'method = "k-means"\nk = 3',
    "given": 'method = "k-means"\nk = 2\ninit = [[0.0, 0.0, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0]]',
    "labels": 'method = "k-means"\nk = 3\nopens = "labels"\ninit = "box"',
}


@pytest.mark.parametrize("name", COLUMNS)
def test_no_question_of_an_honest_column_split_is_refused(tmp_path, name):
    with column_study(tmp_path, COLUMNS[name]) as served:
        assert REASON not in run_honestly(served)


def forge_all(served):
    """Forge every field of every kind of question that an honest run asked; what was admitted, and how many."""
    run_honestly(served)
    seen, admitted, count = set(), [], 0
    for party, call in served.link.calls:
        handler = HANDLERS[call.handler]
        if (party, call.handler) in seen or (handler.classes <= {"keys"} and handler.reads == "nothing"):
            continue
        seen.add((party, call.handler))
        gate = served.sessions[party]._site_server.gate
        assert is_in_study(gate.terms, gate.agreements, handler, call.run, call.message)
        for field, how, other in forged(call.message, handler.note):
            if (call.handler, field) in FREE or field.startswith("messages"):
                continue
            count += 1
            if is_in_study(gate.terms, gate.agreements, handler, call.run, other):
                admitted.append((call.handler, field, how))
    return admitted, count


@pytest.mark.parametrize("name", COLUMNS)
def test_every_forged_question_of_a_column_split_is_refused(tmp_path, name):
    with column_study(tmp_path, COLUMNS[name]) as served:
        admitted, count = forge_all(served)
    assert admitted == []
    assert count > 40


@pytest.mark.parametrize("name", ["k-FED", "MUFC", "summaries", "epsilon", "k-means that opens every sum"])
def test_every_forged_question_of_a_method_of_one_round_is_refused(tmp_path, name):
    cluster, top, privacy, options = HONEST[name]
    with row_study(tmp_path, cluster, top, privacy, **options) as served:
        admitted, count = forge_all(served)
    assert admitted == []
    assert count > 60


@pytest.mark.parametrize("name", ["k-means", "fuzzy c-means with gaps", "a mixture", "K by evidence", "K by an index"])
def test_every_forged_question_of_an_iterated_method_is_refused(tmp_path, name):
    cluster, top, privacy, options = HONEST[name]
    with row_study(tmp_path, cluster, top, privacy, **options) as served:
        admitted, _ = forge_all(served)
    assert admitted == []


def test_all_runs_of_a_private_study_together_spend_its_epsilon(tmp_path):
    cluster, top, privacy, _ = HONEST["epsilon"]
    with row_study(tmp_path, cluster, top, privacy) as served:
        run_honestly(served)
        spent = [session._site_server.gate.noise_budget.spending.spent_rho for session in served.sessions.values()]
        terms = served.sessions["north"]._site_server.gate.terms
        assert 0 < max(spent) <= terms.rho
        with pytest.raises(QuorumLost, match="privacy budget"):
            run_honestly(served, number=2)


@pytest.mark.long
@pytest.mark.parametrize("width", [12, 20, 45])
@pytest.mark.parametrize("k", [3, 10])
def test_no_question_of_an_honest_study_of_a_wide_table_is_refused(tmp_path, width, k):
    rng = np.random.default_rng(0)
    rows = {
        party: np.round(rng.normal(size=(80, width)) + 6 * (rng.random((80, 1)) < 0.5), 6) for party in programs.PARTIES
    }
    cluster = f'method = "k-means"\nk = {k}'
    with ServedStudy.open(tmp_path, rows, cluster=cluster, privacy=SECURE, profile="standard") as served:
        assert REASON not in run_honestly(served)
