"""The programs of the second audit: what a lying, or an honest but curious, coordinator gets from served sites.

Each program returns what it got, counted against the true rows: exact rows, exact extremes, or answers that should not
exist. The names are those of the audit's table.
"""

from __future__ import annotations

import math

import numpy as np

from fedclust.algorithms.cmeans.column_labels import LabelAssignment, move_to_label_means
from fedclust.algorithms.cmeans.row_split import make_question, moments
from fedclust.algorithms.private_kmeans.private_fit import cluster_offsets, lengths
from fedclust.algorithms.private_kmeans.private_questions import Box, LengthsQuestion, OffsetsQuestion
from fedclust.core.noise_price import Price
from fedclust.core.site_interface import View
from fedclust.privacy.attacks.fuzzy_sums import FuzzyEquations, solve
from fedclust.questions import pca, standardisation
from fedclust.questions.cluster_indices import IndexQuestion, index_sums
from fedclust.questions.cluster_indices_columns import LabelChunk, keep_means
from fedclust.questions.index_terms import IndexTerms
from fedclust.questions.missing_values import GapCountsQuestion, census
from served_study import Liar, ServedStudy, count_exact

PARTIES = ("north", "south", "west")
PRIVATE = 'aggregation = "secure"\nepsilon = 1.0'


def three_sites(seed, count=60, columns=2):
    rng = np.random.default_rng(seed)
    return {
        party: np.round(rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, columns)), 6)
        for party in PARTIES
    }


def all_rows(sites):
    return np.concatenate(list(sites.values()))


EVERY_SUM = 'opening = "exact"'  # k-means that opens the sums of every cluster, as fuzzy c-means always does


def open_study(folder, sites, *, mode="plain", **options):
    options.setdefault("privacy", f'aggregation = "{mode}"\n{EVERY_SUM}')
    return ServedStudy.open(folder, sites, **options)


def a1_views_without_a_bound(folder, seed):
    """How many views that bound no row got an answer: a spread that is not positive, or half a view."""
    with open_study(folder, three_sites(seed)) as served:
        liar = Liar(served)
        found = liar.view()
        spreads = [np.full(2, v) for v in (-1.0, -(2.0**-40), 0.0, np.inf)]
        views = [View(np.zeros(2, np.int32), np.zeros(2), spread) for spread in spreads]
        views += [View(found.exponents, np.zeros(2), None), View(found.exponents, None, np.ones(2))]
        answers = []
        for number, view in enumerate(views, 2):
            liar = Liar(served, number)
            with np.errstate(all="ignore"):
                try:
                    answers.append(liar.total(moments, make_question(view, np.zeros((3, 2)), 1.5)))
                except Exception:
                    answers.append(None)
        return sum(answer is not None for answer in answers), liar.codes


def a2_too_many_centres(folder, seed, centres=2_000, approved=True):
    """Exact rows from one question with far more centres than the study has clusters."""
    sites = three_sites(seed)
    rows = all_rows(sites)
    with open_study(folder, sites, mode="secure", approved=approved) as served:
        liar = Liar(served)
        view = liar.view()
        rng = np.random.default_rng(seed + 1)
        points = rng.uniform(rows.min(axis=0), rows.max(axis=0), (centres, 2))
        answer = None if view is None else liar.total(moments, make_question(view, points, 1.0))
        if answer is None:
            return 0, liar.codes
        alone = answer.mass.to_floats() == 1
        return count_exact(answer.pull.to_floats()[alone], rows), liar.codes


BOX = ([-10.0, -10.0], [25.0, 25.0])


def _box():
    return Box(np.array(BOX[0]), np.array(BOX[1]), np.ones(2))


def a3_unpriced(folder, seed, approved=True):
    """What a private study lets out: rows by questions at another price, rows by exact questions, rho that was paid."""
    sites = three_sites(seed)
    rows = all_rows(sites)
    top = f"bounds = [{BOX[0][0]}, {BOX[1][0]}]"
    with open_study(folder, sites, privacy=PRIVATE, top=top, approved=approved) as served:
        liar = Liar(served)
        rng, box = np.random.default_rng(seed + 1), _box()
        z = rng.uniform(rows.min(axis=0), rows.max(axis=0), (1_000, 2)) - box.middle
        ask = OffsetsQuestion(Price(1024.0, 1), box, np.eye(2), z, z, 2, 2.0)
        answer = liar.total(cluster_offsets, ask)
        cells = 0
        if answer is not None:
            sums = answer.sums.to_floats() * math.sqrt(1 + 1 / 16) * 2.0**0
            alone = np.abs(sums[:, -1] / sums[:, -1].max() - 1) < 2
            places = z[alone] + sums[alone, :2] / 1.0 * 2.0 + box.middle
            cells = count_exact(places, rows, tolerance=0.02)
        view = liar.view()
        exact = 0
        if view is not None:
            points = rng.uniform(rows.min(axis=0), rows.max(axis=0), (1_000, 2))
            sums_of_rows = liar.total(moments, make_question(view, points, 1.0))
            if sums_of_rows is not None:
                alone = sums_of_rows.mass.to_floats() == 1
                exact = count_exact(sums_of_rows.pull.to_floats()[alone], rows)
        paid = 0.0
        for session in served.sessions.values():
            if session._site_server is not None:
                paid = max(paid, session._site_server.gate.noise_budget.spending.spent_rho)
        return cells, exact, paid, liar.codes


def a4_largest_values(folder, seed, mode="secure", count=60):
    """How many columns' largest values the unit of rounding gives away, by bisection over all columns at once."""
    sites = three_sites(seed, count)
    rows = all_rows(sites)
    with open_study(folder, sites, mode=mode) as served:
        liar = Liar(served)
        low, high = np.zeros(2), np.full(2, 32.0)
        asked = 0
        for _ in range(60):
            middle = (low + high) / 2
            if ((middle == low) | (middle == high)).all():
                break
            view = View(np.full(2, 40, np.int32), np.zeros(2), 2 * middle)
            unit = np.zeros(2, np.int32)  # a value beyond half the spread rounds to one, any other to zero
            answer = liar.total(standardisation.column_sums, standardisation.ColumnSumsQuestion(view, None, unit))
            asked += 1
            if answer is None:
                break
            beyond = answer.sums.to_floats() > 0
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        found = int(sum(abs(high[f] - rows[:, f].max()) < 1e-9 for f in range(2)))
        return found, asked, liar.codes


def a5_farthest_row(folder, seed, power=4_000.0, mode="secure"):
    """Exact rows from distances of farthest rows: a power of 4,000 leaves nothing else in a sum of distances.

    The farthest row from three near points is one row; where it lies follows from its three distances.
    """
    sites = three_sites(seed)
    rows = all_rows(sites)
    with open_study(folder, sites, mode=mode) as served:
        liar, found = Liar(served), []
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            far_out = 60 * np.array([np.cos(angle), np.sin(angle)]) + rows.mean(axis=0)
            points = far_out + np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])
            unit = np.round(np.sqrt(((rows - far_out) ** 2).sum(axis=1)).max(), 0)  # ten guesses would find it
            view = View(np.full(2, 2, np.int32), np.zeros(2), np.full(2, unit))
            terms = IndexTerms(2.0, power, 0, ("members", "distances"))
            answer = liar.total(index_sums, IndexQuestion(view, points / unit, terms))
            if answer is None:
                break
            integers, bit = answer.distances.to_integers(), int(np.ravel(answer.distances.unit)[0])
            if min(integers) <= 0:
                continue
            d0, d1, d2 = (unit * 2 ** ((math.log2(whole) + bit) / power) for whole in integers)
            a = np.array([points[1] - points[0], points[2] - points[0]])
            b = [(d0**2 - d**2 + p @ p - points[0] @ points[0]) / 2 for d, p in ((d1, points[1]), (d2, points[2]))]
            found.append(np.linalg.solve(a, b))
        return count_exact(found, rows, tolerance=1e-2), len(found), liar.codes


def c4_huge_value(folder, seed):
    """Whether a private site answers with and without a row beyond 2^1000: (answers without, answers with)."""
    answered = []
    for name, value in (("without", 1.0), ("with", 2.0**1010), ("text", 1.7e308)):
        sites = three_sites(seed)
        sites["north"][0, 0] = value
        top = f"bounds = [{BOX[0][0]}, {BOX[1][0]}]"
        with open_study(folder / name, sites, privacy=PRIVATE, top=top, policy_lines="epsilon = 5.0") as served:
            ready = served.coordinator()
            try:
                ready.estimator.fit(ready.fed)
                answered.append("answered")
            except Exception as error:
                answered.append(type(error).__name__)
    return answered


COLUMN_SITES = "[sites.north]\ncolumns = ['a', 'b']\n[sites.south]\ncolumns = ['c']\n[sites.west]\ncolumns = ['d']"


def open_column_study(folder, seed, *, cluster='method = "k-means"\nk = 3', count=60, mode="secure", **options):
    rng = np.random.default_rng(seed)
    table = np.round(rng.normal(rng.choice([0.0, 6.0, 12.0], (count, 1)), 1.0, (count, 4)), 6)
    rows = {"north": table[:, :2], "south": table[:, 2:3], "west": table[:, 3:]}
    text = (
        f'name = "served"\nsplit = "columns"\n[cluster]\n{cluster}\n[privacy]\naggregation = "{mode}"\n{COLUMN_SITES}\n'
    )
    names = {"north": ["a", "b"], "south": ["c"], "west": ["d"]}
    return ServedStudy.from_text(folder, rows, text, names, **options)


def c5_short_questions(folder, seed):
    """The codes with which a site answers short questions that ask for 16 GiB."""
    with open_column_study(folder, seed, cluster='method = "k-means"\nk = 3\nopens = "labels"\ninit = "box"') as served:
        liar = Liar(served)
        from fedclust.algorithms.cmeans import column_split

        liar.each(column_split.prepare, column_split.Preparation())
        labels = np.zeros(60, np.uint8)
        liar.each(move_to_label_means, LabelAssignment(labels, 1 << 31))
        liar.each(keep_means, LabelChunk(0, labels.astype(np.int64), 1 << 31, first=True, last=True))
        return liar.codes


CATEGORIES = """\
name = "served"
[columns.age]
type = "number"
[columns.bp]
type = "number"
[columns.kind]
type = "category"
levels = ["a", "b", "rare"]
[cluster]
method = "k-means"
k = 3
[privacy]
aggregation = "secure"
verified = false
[sites.north]
[sites.south]
[sites.west]
"""


def d4_rare_level(folder, seed, text=CATEGORIES, profile="nhs"):
    """Whether an honest run's opened products show the one row that has a rare level: how many of its two numbers."""
    rng = np.random.default_rng(seed)
    lines, lone = {}, None
    for party in PARTIES:
        own = np.round(rng.normal(rng.choice([0.0, 6.0, 12.0], (60, 1)), 1.0, (60, 2)), 6)
        kinds = rng.choice(["a", "b"], 60).tolist()
        if party == "south":
            kinds[7], lone = "rare", own[7]
        lines[party] = [f"{a!r},{b!r},{kind}" for (a, b), kind in zip(own.tolist(), kinds, strict=True)]
    with ServedStudy.from_text(folder, lines, text, ["age", "bp", "kind"], profile=profile) as served:
        from fedclust.app.analysis import describe
        from fedclust.app.execute import fit_study

        ready = served.coordinator()
        seen = []
        opened = _note_totals(ready.fed, seen)
        model, selection = fit_study(ready)
        described = describe(model, ready.fed, selection)
        del opened
        hits = 0
        for name, message, answer in seen:
            if name != pca.deviation_products.name:
                continue
            one, other = np.triu_indices(len(message.columns))
            rare = np.flatnonzero(message.columns == 4)
            if not len(rare):
                continue
            for column in (0, 1):
                at = np.flatnonzero((one == column) & (other == rare[0]))[0]
                scale = model.spread_[column] if model.spread_ is not None else 1.0
                value = answer.products.to_floats()[at] + message.mean[column]
                hits += abs(value * scale - lone[column]) < 1e-6
        return hits, [note for note in described["notes"] if "rare" in note]


def _note_totals(fed, seen):
    """Note every total that the coordinator opens, by wrapping what the federation drives."""
    drive = fed._coordinator.drive

    def listen(protocol, watch=None):
        return drive(_listening(protocol, seen), watch)

    inner = fed._aggregator.wrap
    fed._aggregator.wrap = lambda protocol, quorum: inner(_listening(protocol, seen), quorum)
    del listen
    return inner


def _listening(protocol, seen):
    from fedclust.core.effects import Ask, rewrite

    def lower(ask: Ask):
        answer = yield ask
        if ask.want == "total":
            seen.append((ask.handler.name, ask.message, answer[0]))
        return answer

    return rewrite(protocol, lower)


def d5_left_out(folder, seed):
    """How many rows each site says it left out, where one site left out one and its floor is ten."""
    sites = three_sites(seed)
    sites["south"][3, 1] = np.nan
    with open_study(folder, sites, top='missing = "drop"') as served:
        liar = Liar(served)
        answers = liar.each(census, GapCountsQuestion("drop"))
        return {} if answers is None else {p: (a.left_out, a.gaps) for p, a in answers.items()}, liar.codes


ALIGNED = """\
name = "served"
split = "columns"
id = "person"
[align]
method = "psi"
[cluster]
method = "k-means"
k = 2
init = "box"
[privacy]
aggregation = "secure"
[sites.north]
columns = ["a"]
[sites.south]
columns = ["b"]
[sites.west]
columns = ["c"]
"""


def d6_enumerated_ids(folder, seed, space=7_000, held=150):
    """How many of a site's ids two colluding sites learn that bring every possible id, and the refusal otherwise."""
    rng = np.random.default_rng(seed)
    own = rng.choice(space, held, replace=False)
    lines = {
        "north": [f"{value},{person}" for value, person in zip(rng.normal(size=held), own, strict=True)],
        "south": [f"{value},{person}" for value, person in zip(rng.normal(size=space), range(space), strict=True)],
        "west": [f"{value},{person}" for value, person in zip(rng.normal(size=space), range(space), strict=True)],
    }
    names = {"north": ["a", "person"], "south": ["b", "person"], "west": ["c", "person"]}
    with ServedStudy.from_text(folder, lines, ALIGNED, names) as served:
        ready = served.coordinator()
        from fedclust.core.errors import FedclustError

        try:
            ready.estimator.fit(ready.fed)
            code = "done"
        except FedclustError as error:
            code = str(error)
        session = served.sessions["south"]._site_server
        if session is None:
            return 0, code
        run = ready.fed.run_id
        rows = session.data_for_run(run).source
        learned = 0 if rows is session.site_data.source else len(list(rows.ids()))
        return learned, code


def g1_moved_centres(folder, seed, count=400):
    """Rows from differences of the sums around two centres that move by a tenth, until a rule stops it."""
    sites = three_sites(seed, count)
    rows = all_rows(sites)
    with open_study(folder, sites, cluster='method = "k-means"\nk = 2') as served:
        liar = Liar(served)
        view = liar.view()
        found, before, asked = [], None, 0
        for step in range(400):
            at = 2.0 + 0.1 * step
            answer = liar.total(moments, make_question(view, np.array([[at - 1.0, at], [at + 1.0, at]]), 1.0))
            if answer is None:
                break
            asked += 1
            mass, pull = answer.mass.to_floats(), answer.pull.to_floats()
            if before is not None:
                found += [
                    (pull[c] - before[1][c]) / (mass[c] - before[0][c])
                    for c in range(2)
                    if abs(mass[c] - before[0][c]) == 1
                ]
            before = mass, pull
        return count_exact(found, rows), asked, len(rows), liar.codes


def lengths_at(price, box=None):
    """A private question at a price."""
    return lengths, LengthsQuestion(price, _box() if box is None else box)


def e4_fuzzy_totals(folder, seed, count=4, columns=4):
    """How many rows least squares finds in the totals that an honest secure study of fuzzy c-means opens."""
    rng = np.random.default_rng(seed)
    sites = {party: np.round(rng.normal(size=(count, columns)) * 3, 6) for party in PARTIES}
    options = {"cluster": 'method = "fuzzy-c-means"\nk = 3\ninit = "box"', "profile": "datashield"}
    with open_study(folder, sites, privacy='aggregation = "secure"', policy_lines="min_cell = 1", **options) as served:
        ready, seen = served.coordinator(), []
        _note_totals(ready.fed, seen)
        ready.estimator.fit(ready.fed)
    rounds = {ask.centers.tobytes(): (ask, own) for name, ask, own in seen if name == moments.name}
    asked = list(rounds.values())[:8]
    target = [np.column_stack([own.mass.to_floats(), own.pull.to_floats()]) for _, own in asked]
    centers = np.stack([ask.centers for ask, _ in asked])
    sums = FuzzyEquations(centers, np.stack(target), asked[0][0].m, 3 * count)
    found = solve(sums, batches=6, rng=np.random.default_rng(0))
    return count_exact([] if found is None else found, all_rows(sites), tolerance=1e-4), 3 * count
