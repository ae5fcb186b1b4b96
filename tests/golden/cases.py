"""Every golden case under a stable name, and the one adapter that knows how today's code spells what they digest."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import struct
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import fedclust as fc
from fedclust import kernels
from fedclust.algorithms.gaussian_mixture import mixture
from fedclust.app import analysis, unlearning
from fedclust.app.serve import import_questions
from fedclust.core import wire
from fedclust.core.effects import HANDLERS, Keep
from fedclust.core.errors import FedclustError
from fedclust.core.ring import Exact
from fedclust.kernels import _backend
from fedclust.privacy import row_noise
from fedclust.privacy.verified.transcript import confirm_model
from fedclust.questions import bounds
from fedclust.questions.choice_of_k.centers_for_each_k import grow_centers
from fedclust.questions.choice_of_k.choice import choose_groups
from fedclust.report import method_ranks
from fedclust.site import noise_budget
from fedclust.testing.faulty_engines import Faulty
from papers.deep_sites import populate

import_questions()  # a handler that is imported later would not be recorded

# --- The adapter: everything here that names an attribute, a handler, a module's function or an option. -------------
# After a rename, change the right-hand side. The left-hand side, and every order, stays as it was recorded.


def history(model: Any, *names: str) -> list[list[Any]]:
    return [[entry[name] for name in names] for entry in model.history_]


READ: dict[str, Callable[[Any], Any]] = {
    "centres": lambda m: getattr(m, "cluster_centers_", None),
    "scaled centres": lambda m: getattr(m, "scaled_centers_", None),
    "start": lambda m: getattr(m, "initial_centers_", None),
    "sizes": lambda m: m.cluster_sizes_,
    "objective": lambda m: m.final_objective,
    "rounds": lambda m: m.n_iter_,
    "history": lambda m: history(m, "round", "shift", "objective"),
    "labels": lambda m: getattr(m, "labels_", None),
    "origin": lambda m: getattr(m, "origin_", None),
    "spread": lambda m: getattr(m, "spread_", None),
    "number of notes": lambda m: len(m.notes_),
    "ids": lambda m: getattr(m, "ids_", None),
    "weights": lambda m: m.weights_,
    "variances": lambda m: m.variances_,
    "log-likelihood": lambda m: m.log_likelihood_,
    "entropy": lambda m: m.entropy_,
    "bic": lambda m: m.bic_,
    "icl": lambda m: m.icl_,
    "nodes": lambda m: m.nodes_,
    "scaled nodes": lambda m: m.scaled_nodes_,
    "node rows": lambda m: m.node_rows_,
    "node labels": lambda m: m.node_labels_,
    "levels": lambda m: [
        [level[name] for name in ("resolution", "clusters", "silhouette", "stability", "modularity")]
        for level in getattr(m, "levels_", [])
    ],
    "clearness": lambda m: getattr(m, "clearness_", None),
    "balls": lambda m: getattr(m, "spherical_", False),
    "fences": lambda m: getattr(m, "fences_", None),
    "rounds of nodes": lambda m: history(m, "round", "rows", "sent", "nodes", "clusters", "shift", "objective"),
    "found clusters": lambda m: m.n_clusters_,
    "width": lambda m: m.cluster_width_,
    "found rows": lambda m: m.n_rows_,
    "prices": lambda m: m.prices_,
    "honest": lambda m: m.honest_,
    "epsilon": lambda m: m.epsilon_,
    "reported epsilon": lambda m: m.reported_epsilon_,
    "communities": lambda m: [m.n_communities_, list(m.communities_)],
    "models": lambda m: m.models_,
    "usual errors": lambda m: m.usual_,
    "isolated": lambda m: [[site, int(cluster)] for site, cluster in m.isolated_],
    "isolated models": lambda m: [m.isolated_models_, m.isolated_usual_],
    "rounds of communities": lambda m: history(m, "round", "communities", "isolated", "active"),
    "layers": lambda m: list(m.layers_),
    "code scale": lambda m: m.scale_,
    "code centres": lambda m: m.code_centers_,
}

CENTRES = (
    *("centres", "scaled centres", "start", "sizes", "objective", "rounds", "history", "labels", "origin", "spread"),
    *("ids", "number of notes"),
)
MIXTURE = (
    *("centres", "scaled centres", "start", "sizes", "objective", "rounds", "history", "labels", "origin", "spread"),
    *("weights", "variances", "log-likelihood", "entropy", "bic", "icl", "number of notes"),
)
NODES = (
    *("nodes", "scaled nodes", "node rows", "node labels", "centres", "scaled centres", "sizes", "levels", "clearness"),
    *("balls", "objective", "rounds", "rounds of nodes", "fences", "origin", "spread", "labels", "number of notes"),
)
PRIVATE = (
    *("centres", "scaled centres", "start", "sizes", "width", "found rows", "found clusters", "rounds", "history"),
    *("prices", "honest", "epsilon", "reported epsilon", "labels", "origin", "spread", "number of notes"),
)
COMMUNITIES = (
    *("communities", "models", "usual errors", "isolated", "isolated models", "sizes", "rounds"),
    *("rounds of communities", "origin", "spread", "labels", "number of notes"),
)
CODES = ("layers", "code scale", "code centres", "labels", "rounds", "number of notes")

INDICES = (
    *("fuzzy-davies-bouldin", "davies-bouldin", "xie-beni", "calinski-harabasz", "simplified-silhouette"),
    *("partition-coefficient", "partition-entropy"),
)
DESCRIBED = ("profiles", "map", "sizes", "indices", "composition", "fuzziness", "selection", "convergence", "privacy")
SCORES = {
    "evidence": ("k", "family", "evidence", "chosen"),
    # what an index has, among names of a criterion that is gone
    "index": ("k", *("log_likelihood", "bic", "icl", "separation", "dropped"), "value", "objective", "chosen"),
}
# Handlers: the name it was recorded under -> today's name.
RENAMED: dict[str, str] = {
    "agreement.count": "label_agreement.count_classes",
    "agreement.remember": "label_agreement.remember_truth",
    "align.come_back": "alignment.return_tags",
    "align.enough": "alignment.accept_count",
    "align.pass_on": "alignment.pass_list",
    "align.set_out": "alignment.send_own_list",
    "align.settle": "alignment.keep_common_rows",
    "align.stay": "alignment.keep_all_rows",
    "blind.add": "blind_aggregation.add",
    "blind.group": "blind_aggregation.group",
    "blind.tell": "blind_aggregation.reply",
    "bounds.rows": "bounds.count_rows",
    "fcac.nodes": "site_nets.learn_rows",
    "fcac_summaries.summaries": "summaries.summarise_rows",
    "fcm_averaged.local_centers": "averaged_fcm.local_centers",
    "fcm_averaged.weighted_centers": "averaged_fcm.weighted_centers",
    "fcm_gradient.slope": "gradient_fcm.local_gradient",
    "fcm_local.cost": "local_fcm.cost",
    "fedcref_private_site.ballot": "private_site.count_votes",
    "fedcref_private_site.contest": "private_site.count_wins",
    "fedcref_private_site.own_slopes": "private_site.own_gradients",
    "fedcref_private_site.own_sums": "private_site.own_sums",
    "fedcref_private_site.slopes": "private_site.community_gradients",
    "fedcref_private_site.told": "private_site.remember_labels",
    "fedcref_private_site.usual": "private_site.sum_errors",
    "fedcref_site.read": "fedcref_site.keep_errors",
    "fedcref_site.step": "fedcref_site.train_community",
    "gaussians.moments": "densities.moments",
    "gaussians.reach": "densities.mark_deviations",
    "gaussians.scatter": "densities.scatter_matrix",
    "horizontal.moments": "row_split.moments",
    "indices.around": "cluster_indices.index_sums",
    "indices.gather": "cluster_indices.label_sums",
    "indices.scatter": "cluster_indices.label_scatter",
    "indices_columns.apart": "cluster_indices_columns.mean_distances",
    "indices_columns.gaps": "cluster_indices_columns.center_gaps",
    "indices_columns.keep_means": "cluster_indices_columns.keep_means",
    "missing.census": "missing_values.census",
    "missing.gaps": "missing_values.count_gaps",
    "mufc.powers": "mufc.cell_power_sums",
    "partial.moments": "rows_with_gaps.moments",
    "partial.seeds": "rows_with_gaps.seed_candidates",
    "partitions.shared": "partition_changes.count_shared_rows",
    "pca.around": "pca.spread_sums",
    "pca.products": "pca.deviation_products",
    "private.grid": "private_fit.count_cells",
    "private.lengths": "private_fit.lengths",
    "private.moves": "private_fit.cluster_offsets",
    "private.products": "private_fit.second_moments",
    "ranges.reaches": "ranges.mark_ranges",
    "recovery.consent": "dropout_recovery.consent",
    "recovery.share": "dropout_recovery.share",
    "recovery.unmask": "dropout_recovery.unmask",
    "select.products": "feature_selection.pair_products",
    "select_centers.gains": "centers_for_each_k.gains",
    "select_centers.move": "centers_for_each_k.cluster_moments",
    "select_centers.widths": "centers_for_each_k.widths",
    "select_range.own_k": "k_range.own_k",
    "standardise.spread": "standardisation.column_sums",
    "start.draw": "initial_centers.draw_candidates",
    "start.seeds": "initial_centers.seed_candidates",
    "strength.tables": "contingency_tables.count_label_pairs",
    "vertical.measure": "column_split.measure_distances",
    "vertical.place": "column_split.place_centers",
    "vertical.prepare": "column_split.prepare",
    "vertical.reach": "column_split.mark_distance_bounds",
    "vertical.reveal": "column_split.reveal",
    "vertical.roll": "column_split.identify_rows",
    "vertical.weigh": "column_split.apply_weights",
    "vertical_labels.enter": "column_labels.enter_comparison",
    "vertical_labels.finish": "column_labels.finish_comparison",
    "vertical_labels.get_to_know": "column_labels.receive_seed",
    "vertical_labels.go_on": "column_labels.continue_comparison",
    "vertical_labels.hand_over": "column_labels.split_distances",
    "vertical_labels.move": "column_labels.move_to_label_means",
    "vertical_labels.sit_down": "column_labels.take_seat",
}


def parts_of(model: Any, what: tuple[str, ...], rows: Any = None) -> dict[str, Any]:
    """What is digested of a fitted model, by meaning."""
    found = {name: READ[name](model) for name in what}
    if rows is not None:
        found["predicted"] = model.predict(rows)
        for name in ("memberships", "predict_proba", "score_samples"):
            if hasattr(model, name):
                found[name] = getattr(model, name)(rows)
    return found


def messages(fed: fc.Federation) -> list[int]:
    """How many answers each site gave; their lengths depend on names, and are left out."""
    return [own["messages"] for own in fed.traffic().values()]


def selected(found: Any) -> dict[str, Any]:
    return {
        "k": found.k,
        "range": list(found.range),
        "stability": found.stability,
        **({} if found.verdict is None else {"judged": [found.verdict, found.certainty]}),
        "scores": [[entry.get(name) for name in SCORES[found.criterion]] for entry in found.scores],
        "notes": len(found.notes),
        **parts_of(found.model, CENTRES),
    }


def described(model: Any, fed: fc.Federation) -> dict[str, Any]:
    """The numbers of a description; words, and the lengths of messages, are left out."""
    document = analysis.describe(model, fed)
    return {name: numbers(document[name]) for name in DESCRIBED}


def certified(model: Any, fed: fc.Federation, what: tuple[str, ...], **how: Any) -> dict[str, Any]:
    made, certificate = unlearning.unlearn(model, fed, **how)
    told = [certificate.sites, certificate.exact, certificate.same_partition, certificate.matches_replay]
    return {**parts_of(made, what), "certificate": [*told, certificate.center_distance]}


@contextlib.contextmanager
def fixed_noise() -> Any:
    """Noise of differential privacy comes from the operating system; here the same numbers are drawn each time."""

    def drawn(count: int, scale: float) -> Any:
        return np.rint(np.random.default_rng(count).normal(size=count) * scale).astype(np.int64)

    before, noise_budget.draw_gaussian_noise = noise_budget.draw_gaussian_noise, drawn
    try:
        yield
    finally:
        noise_budget.draw_gaussian_noise = before


@contextlib.contextmanager
def one_thread_of_torch() -> Any:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def recorded_answers(keep: Callable[[str, Any, Any, Any], None]) -> Any:
    """Let `keep` see each handler's name, question, release and memory, before noise and masks."""

    def wrapped(handler: Any) -> Any:
        def answer(site: Any, message: Any) -> Any:
            found = handler.answer(site, message)
            with_memory = isinstance(found, Keep)
            release = found.release if with_memory else found
            keep(handler.name, message, release, found.memory if with_memory else None)
            return found

        return dataclasses.replace(handler, answer=answer)

    before = dict(HANDLERS)
    HANDLERS.update({name: wrapped(handler) for name, handler in before.items()})
    try:
        yield
    finally:
        HANDLERS.update(before)


def handler_names() -> list[str]:
    """Every registered handler, by the name it was recorded under."""
    first = {now: recorded for recorded, now in RENAMED.items()}
    # Tests of protocols register handlers of their own.
    ours = (name for name, handler in HANDLERS.items() if handler.answer.__module__.startswith("fedclust."))
    return sorted(first.get(name, name) for name in ours)


def silent(fed: fc.Federation, party: str, *, since: int) -> fc.Federation:
    """The federation with a site that answers nothing from a step on."""
    fed.use_engine(Faulty(fed.engine, lambda step, one: "silent" if one == party and step >= since else None))
    return fed


def without_name(data: bytes) -> bytes:
    """The bytes of a message without its format's mark and the name of its class."""
    return data.split(b"\0", 1)[1] if data.startswith(wire.MAGIC[:2]) and b"\0" in data else data


# --- Digests ---------------------------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    """Exact bits of values in their order, with shapes and kinds; no names of classes or fields."""
    found = hashlib.sha256()
    for piece in pieces(value):
        found.update(piece)
    return found.hexdigest()[:32]


def pieces(value: Any) -> Any:
    if isinstance(value, Exact):
        whole = [str(n) for n in value.to_integers()]
        yield f"exact {value.shape} {','.join(whole)}".encode()
        yield from pieces(value.unit)
    elif isinstance(value, np.ndarray | np.generic):
        yield from array_pieces(np.asarray(value))
    elif value is None or isinstance(value, bool | int):
        yield f"{value!r};".encode()
    elif isinstance(value, float):
        yield b"float" + struct.pack("<d", value)
    elif isinstance(value, str):
        yield f"text {len(value)} {value}".encode()
    elif isinstance(value, bytes | memoryview):
        body = without_name(bytes(value))
        yield f"bytes {len(body)} ".encode() + body
    elif isinstance(value, dict):
        yield f"map {len(value)}".encode()
        for key, item in value.items():
            yield from pieces(key)
            yield from pieces(item)
    elif isinstance(value, list | tuple):
        yield f"list {len(value)}".encode()
        for item in value:
            yield from pieces(item)
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        yield f"record {len(fields)}".encode()
        for field in fields:
            yield from pieces(getattr(value, field.name))
    else:
        raise TypeError(f"{type(value)} has no digest")


def array_pieces(array: Any) -> Any:
    if array.dtype.kind in "OU":
        yield from pieces([str(item) for item in array.ravel()])
        return
    if array.dtype == np.uint8 and array.ndim == 1:
        yield from pieces(array.tobytes())
        return
    kind = {"i": "<i8", "u": "<u8", "b": "|b1"}.get(array.dtype.kind, array.dtype.newbyteorder("<").str)
    plain = np.ascontiguousarray(array.astype(kind))
    yield f"array {plain.dtype.str} {plain.shape} ".encode() + plain.tobytes()


def numbers(value: Any) -> list[Any]:
    """All numbers of a document, in its order."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, bool | int | float) else []


# --- Tables and federations ------------------------------------------------------------------------------------------


@cache
def table() -> Any:
    """Three groups of rows that overlap a little, in four columns of different scales."""
    rng = np.random.default_rng(20)
    groups = np.array([[0.0, 0.0, 0.0, 0.0], [5.0, 1.0, 4.0, -3.0], [-1.0, 6.0, 3.0, 2.0]])
    X = rng.normal(size=(120, 4)) + groups[rng.integers(3, size=120)]
    return X * np.array([1.0, 10.0, 0.1, 3.0]) + np.array([0.0, 50.0, 1.0, -7.0])


@cache
def gapped() -> Any:
    X = table().copy()
    X[np.random.default_rng(21).random(X.shape) < 0.08] = np.nan
    return X


NEW = np.random.default_rng(22).normal(size=(12, 4)) * np.array([3.0, 40.0, 0.3, 9.0]) + np.array([1, 60, 1.2, -6])
NAMES = ["age", "pressure", "dose", "score"]
CUTS = (17, 48, 90)
BOX = [(-8.0, 12.0), (0.0, 150.0), (0.0, 2.5), (-30.0, 15.0)]


def parts(X: Any = None) -> dict[str, Any]:
    return dict(zip(("north", "south", "east", "west"), np.split(table() if X is None else X, CUTS), strict=True))


def rows_fed(X: Any = None, **options: Any) -> fc.Federation:
    return fc.Federation.local(parts(X), columns=NAMES, **options)


def columns_fed(X: Any = None, *, four: bool = False, **options: Any) -> fc.Federation:
    X = table() if X is None else X
    held = {"clinic": [0], "laboratory": [3], "register": [2], "study": [1]} if four else {}
    held = held or {"clinic": [0], "laboratory": [3, 1], "register": [2]}
    return fc.Federation.local(
        {party: X[:, own] for party, own in held.items()},
        split="columns",
        columns={party: [NAMES[i] for i in own] for party, own in held.items()},
        order=NAMES,
        **options,
    )


def by_ids(parties: int = 3, **options: Any) -> fc.Federation:
    """Tables of rows that overlap, in orders of their own."""
    import pandas as pd

    rng, X = np.random.default_rng(23), table()
    found = {}
    for number, party in enumerate(("clinic", "laboratory", "register")[:parties]):
        rows = rng.permutation(np.arange(4 * number, 100 + 3 * number) if "align" in options else np.arange(100))
        columns = {NAMES[number]: X[rows, number]} | ({NAMES[3]: X[rows, 3]} if number == 0 else {})
        found[party] = pd.DataFrame({"who": [f"p{row:03d}" for row in rows], **columns})
    return fc.Federation.local(found, split="columns", id="who", **options)


def declared_fed(**options: Any) -> fc.Federation:
    """Numbers, an ordinal and a category."""
    import pandas as pd

    rng, X = np.random.default_rng(24), table()
    whole = pd.DataFrame(
        {
            "age": X[:, 0],
            "stage": rng.choice(["I", "II", "III"], 120),
            "kind": rng.choice(["a", "b", "c"], 120),
            "dose": X[:, 2],
        }
    )
    columns = {
        "age": fc.Column(unit="years"),
        "stage": fc.Column("ordinal", levels=["I", "II", "III"]),
        "kind": fc.Column("category", levels=["a", "b", "c"]),
        "dose": fc.Column(),
    }
    cut = zip(("north", "south", "east", "west"), np.split(np.arange(120), CUTS), strict=True)
    return fc.Federation.local({p: whole.iloc[own] for p, own in cut}, columns=columns, **options)


# --- Cases -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """One value: `parts` makes what is digested. `processor`: other processors may round it otherwise."""

    name: str
    parts: Callable[[], Any]
    processor: bool = False
    backend: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """What this machine lacks for the case."""
        if self.backend is not None and self.backend not in _backend.available:
            return "no compiled kernels here"
        lacking = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{', '.join(lacking)} not installed" if lacking else None

    def found(self) -> Any:
        """What is digested, or that the combination is refused."""
        with kernels.use_backend(self.backend) if self.backend else contextlib.nullcontext():
            try:
                return self.parts()
            except FedclustError as error:
                return error

    def value(self) -> str:
        """The digest, from the same run of a scenario if there was one."""
        if self.parts in DIGESTS and self.backend in {None, kernels.backend()}:
            return DIGESTS[self.parts]
        found = self.found()
        return "refused" if isinstance(found, FedclustError) else digest(found)


CASES: dict[str, Case] = {}
DIGESTS: dict[Callable[[], Any], str] = {}  # of what scenarios gave
SCENARIOS: list[tuple[Callable[[], Any], bool, tuple[str, ...]]] = []  # what handlers are recorded in


def add(
    name: str, made: Callable[[], Any], *, processor: bool = False, backend: str | None = None, **more: Any
) -> None:
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = Case(name, made, processor, backend, **more)


def fitted(
    make: Callable[[], Any], what: tuple[str, ...], fed: Callable[..., fc.Federation], how: dict[str, Any], rows: Any
) -> dict[str, Any]:
    where = fed(**how)
    model = make().fit(where)
    return {**parts_of(model, what, rows), "messages": messages(where)}


START = [[0.0, 50.0, 1.0, -7.0], [5.0, 60.0, 1.4, -16.0], [-1.0, 110.0, 1.3, -1.0]]
QUICK = {"max_iter": 12}
CMEANS: dict[str, dict[str, Any]] = {
    "given": {"init": START},
    "box": {"init": "box"},
    "party": {"init": "party"},
    "careful": {"init": "careful"},
    "k-means++": {},
    "random": {"init": "random", "n_init": 3},
    "other-seed": {"random_state": 7},
    "exact-stop": {"init": START, "tol": None, "max_iter": 5},
    "bounds": {"init": "box", "bounds": BOX},
    "standardised": {"scale": "standardise"},
    "standardised-box": {"scale": "standardise", "init": "box"},
    "minmax": {"scale": "minmax", "bounds": BOX, "init": "box"},
    "small-sites": {"init": START, "small_sites": "paper"},
    "participation": {"init": START, "participation": 0.5},
    "quorum": {"init": START, "quorum": 3},
}
FUZZY = {
    **CMEANS,
    "m-1.7": {"m": 1.7, "scale": "standardise"},
    "m-1.3": {"m": 1.3, "scale": "standardise"},
    "m-1.7-given": {"m": 1.7, "init": START},
    "m-1.3-box": {"m": 1.3, "init": "box"},
    "m-3": {"m": 3.0, "init": START},
}
HARD = {**CMEANS, "singletons": {"init": START, "singletons": "paper"}}
LOSSY: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "averaged-fuzzy-c-means/kmeans": (partial(fc.AveragedFuzzyCMeans, 3, max_iter=8), CENTRES),
    "averaged-fuzzy-c-means/index": (
        partial(fc.AveragedFuzzyCMeans, 3, average="index", scale="standardise", max_iter=8),
        CENTRES,
    ),
    "averaged-fuzzy-c-means/m-1.7": (partial(fc.AveragedFuzzyCMeans, 3, m=1.7, init="box", max_iter=8), CENTRES),
    "gradient-fuzzy-c-means/careful": (
        partial(fc.GradientFuzzyCMeans, 3, max_iter=6, scale="standardise"),
        CENTRES,
    ),
    "gradient-fuzzy-c-means/box": (
        partial(fc.GradientFuzzyCMeans, 3, m=1.7, max_iter=6, init="box", scale="minmax", bounds=BOX),
        CENTRES,
    ),
    "k-fed/default": (partial(fc.KFed, 3), CENTRES),
    "k-fed/scaled": (partial(fc.KFed, 3, scale="standardise", min_rows=4, local_clusters=4), CENTRES),
    "mufc/default": (partial(fc.MUFC, 3), CENTRES),
    "mufc/scaled": (partial(fc.MUFC, 3, bounds=BOX, scale="minmax", local_clusters=5), CENTRES),
    "mufc/step": (partial(fc.MUFC, 3, step=0.05, scale="standardise", min_rows=3), CENTRES),
    "fcac/default": (fc.SummaryClustering, NODES),
    "fcac/standardised": (partial(fc.SummaryClustering, scale="standardise", floor=3), NODES),
    "fcac/unscaled": (partial(fc.SummaryClustering, scale="none"), NODES),
    "fcac/range": (partial(fc.SummaryClustering, scale="range"), NODES),
    "fcac/few-nodes": (partial(fc.SummaryClustering, floor=3, max_nodes=20), NODES),
    "fcac/published": (fc.FCAC, NODES),
    "fcac/published-minmax": (partial(fc.FCAC, scale="minmax", bounds=BOX, max_nodes=40), NODES),
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "wire": {"wire": True},
    "secure": {"aggregation": "secure"},
    "blind": {"aggregation": "blind", "early_stopping": True},
    "blind-even": {"aggregation": "blind"},
}
EVERY_MODE = {  # settings that run by wire too, and in secure and blind mode on both backends
    *("given", "box", "careful", "k-means++", "standardised", "m-1.7", "participation", "quorum", "drop", "partial"),
    *("VVI", "EEE", "default", "published", "kmeans", "index"),
}
EVEN = {"given", "VVI", "default"}  # a blind run that hides its end asks very often
TWICE = ("c", "numpy")


def over_rows() -> None:
    made: dict[str, tuple[Callable[[], Any], tuple[str, ...], bool, Any]] = {}
    for method, kind, settings in (("c-means", fc.KMeans, HARD), ("fuzzy-c-means", fc.FuzzyCMeans, FUZZY)):
        for name, options in settings.items():
            made[f"{method}/{name}"] = partial(kind, 3, **QUICK | options), CENTRES, False, None
        for name, options in {
            "drop": {"missing": "drop"},
            "drop-standardised": {"missing": "drop", "scale": "standardise", "init": "box"},
            "partial": {"missing": "partial"},
            "partial-careful": {"missing": "partial", "init": "careful"},
            "partial-standardised": {"missing": "partial", "scale": "standardise", "init": "box"},
            "partial-given": {"missing": "partial", "init": START},
        }.items():
            made[f"{method}/{name}"] = partial(kind, 3, **QUICK | options), CENTRES, False, gapped
    for name, options in {"m-1.7": {"m": 1.7}, "m-1.3": {"m": 1.3}}.items():
        own = {**QUICK, **options, "missing": "partial", "scale": "standardise"}
        made[f"fuzzy-c-means/partial-{name}"] = partial(fc.FuzzyCMeans, 3, **own), CENTRES, False, gapped
    for family in ("EII", "VII", "VVI", "EEE"):
        for name, options in {"": {}, "-standardised": {"scale": "standardise", "init": "box"}}.items():
            own = {"family": family, "max_iter": 10, **options}
            made[f"gaussian-mixture/{family}{name}"] = partial(fc.GaussianMixture, 3, **own), MIXTURE, False, None
    made["gaussian-mixture/drop"] = partial(fc.GaussianMixture, 3, missing="drop", max_iter=10), MIXTURE, False, gapped
    for name, (make, what) in LOSSY.items():
        made[name] = make, what, False, None
    for name, make in {
        "averaged-fuzzy-c-means": partial(fc.AveragedFuzzyCMeans, 3, missing="drop", max_iter=5),
        "k-fed": partial(fc.KFed, 3, missing="drop"),
        "mufc": partial(fc.MUFC, 3, missing="drop"),
        "fcac": partial(fc.SummaryClustering, missing="drop", scale="none"),
    }.items():
        made[f"{name}/drop"] = make, NODES if name == "fcac" else CENTRES, False, gapped
    for name, (make, what, processor, X) in made.items():
        setting = name.partition("/")[2]
        fed = partial(lambda X, **how: rows_fed(X() if X else None, **how), X)
        for mode, how in MODES.items():
            if setting not in {"wire": EVERY_MODE, "blind-even": EVEN}.get(mode, {setting}):
                continue
            run = partial(fitted, make, what, fed, how, None if X else NEW)
            for backend in backends(setting, mode):
                add(f"rows/{name}/{mode}/{backend}", run, processor=processor, backend=backend)
            if mode == "plain":
                SCENARIOS.append((run, processor, ()))


def over_columns() -> None:
    settings: dict[str, tuple[Any, dict[str, Any]]] = {
        f"c-means/{name}": (fc.KMeans, CMEANS[name])
        for name in ("given", "box", "careful", "bounds", "standardised", "minmax", "exact-stop")
    }
    settings |= {
        f"fuzzy-c-means/{name}": (fc.FuzzyCMeans, FUZZY[name])
        for name in (
            "given",
            "box",
            "careful",
            "standardised",
            "minmax",
            "m-1.7",
            "m-1.3",
            "m-1.7-given",
            "m-1.3-box",
        )
    }
    for method in ("c-means", "fuzzy-c-means"):  # what was called careful in a column split
        kind, _ = settings[f"{method}/careful"]
        settings[f"{method}/careful"] = kind, {}
    few = {"max_iter": 3, "opens": "labels"}
    settings |= {
        "c-means/opens-labels-given": (fc.KMeans, {"init": START, **few}),
        "c-means/opens-labels-four": (fc.KMeans, {"init": START, **few}),
        "c-means/opens-labels-box": (fc.KMeans, {"init": "box", "scale": "standardise", **few}),
    }
    for name, (kind, options) in settings.items():
        setting = name.partition("/")[2]
        for mode, how in MODES.items():
            if setting not in {"wire": EVERY_MODE, "blind-even": EVEN}.get(mode, {setting}):
                continue
            sites = {"four": True} if setting.endswith("four") else {}
            run = partial(columns_fitted, partial(kind, 3, **QUICK | options), how | sites)
            for backend in backends(setting, mode):
                add(f"columns/{name}/{mode}/{backend}", run, backend=backend)
            if mode == "plain":
                SCENARIOS.append((run, False, ()))
    for name, how in {
        "ids": {},
        "align": {"align": "psi"},
        "align-first": {"align": "psi", "duplicates": "first"},
    }.items():
        for mode in ("plain",) if "align" in how else ("plain", "secure"):
            run = partial(fitted, partial(fc.KMeans, 3, **QUICK), CENTRES, partial(by_ids, **how), MODES[mode], None)
            add(f"columns/c-means/{name}/{mode}", run)
            SCENARIOS.append((run, False, ()))
    alone = partial(fitted, partial(fc.KMeans, 2), CENTRES, partial(by_ids, 1, align="psi"), {}, None)
    add("columns/c-means/align-alone/plain", alone)
    SCENARIOS.append((alone, False, ()))


def columns_fitted(make: Callable[[], Any], how: dict[str, Any]) -> dict[str, Any]:
    fed = columns_fed(**how)
    model = make().fit(fed)
    return {**parts_of(model, CENTRES), "messages": messages(fed), "predicted": model.predict(columns_fed(NEW, **how))}


def other_fits() -> None:
    whole = (("c-means", fc.KMeans, {}), ("fuzzy-c-means", fc.FuzzyCMeans, {"m": 1.7}))
    for method, kind, options in whole:
        for backend in TWICE:
            add(f"pooled/{method}/{backend}", partial(pooled, partial(kind, 3, **options)), backend=backend)
            add(f"stream/{method}/{backend}", partial(streamed, partial(kind, 3, **options)), backend=backend)
        add(f"quorum/{method}/plain", partial(lacking, partial(kind, 3, quorum=3, **QUICK, **options), {}))
        add(f"quorum/{method}/share", partial(lacking, partial(kind, 3, quorum=0.75, **QUICK, **options), {}))
        secure = partial(lacking, partial(kind, 3, quorum=3, **QUICK, **options), MODES["secure"])
        add(f"quorum/{method}/secure", secure)
        SCENARIOS.append((secure, False, ()))
        floored = partial(floored_cells, partial(kind, 3, **QUICK, **options))
        add(f"floored-cells/{method}", floored)
        SCENARIOS.append((floored, False, ()))
        declared = partial(fitted, partial(kind, 3, **QUICK, **options), CENTRES, declared_fed, {}, None)
        add(f"declared/{method}", declared)
        SCENARIOS.append((declared, False, ()))
        for how in ("blind", "blind-even"):
            run = partial(fitted, partial(kind, 3, init=START, max_iter=3, **options), CENTRES, rows_fed, MODES[how])
            SCENARIOS.append((partial(run, None), False, ()))
    add("quorum/gaussian-mixture/plain", partial(lacking, partial(fc.GaussianMixture, 3, quorum=3, max_iter=8), {}))
    add("quorum/k-fed/plain", partial(lacking, partial(fc.KFed, 3, quorum=3), {}))
    for setting, kind in (("default", fc.SummaryClustering), ("published", fc.FCAC)):
        for mode in ("plain", "secure"):
            for backend in TWICE:
                run = partial(rounds_of_nodes, kind, MODES[mode])
                add(f"later-rounds/fcac/{setting}/{mode}/{backend}", run, backend=backend)
        SCENARIOS.append((partial(rounds_of_nodes, kind, {}), False, ()))


def floored_cells(make: Callable[[], Any]) -> dict[str, Any]:
    """A start from cells of at least eight rows, as in a study."""
    fed = rows_fed()
    fed.cell_floor = 8
    return parts_of(make().fit(fed), CENTRES)


def backends(setting: str, mode: str) -> tuple[str, ...]:
    both = mode == "plain" or (mode in {"secure", "blind"} and setting in EVERY_MODE)
    return TWICE if both else TWICE[:1]


def pooled(make: Callable[[], Any]) -> dict[str, Any]:
    return parts_of(make().fit(table()), CENTRES, NEW)


def streamed(make: Callable[[], Any]) -> dict[str, Any]:
    X = table()
    model = make().fit(rows_fed(X[:100]))
    first = parts_of(model, CENTRES)
    second = parts_of(model.partial_fit(rows_fed(X[15:])), CENTRES)
    return {
        "first": first,
        "second": second,
        "third": parts_of(model.partial_fit(rows_fed(X * 1.1), keep=0.3), CENTRES),
    }


def lacking(make: Callable[[], Any], how: dict[str, Any]) -> dict[str, Any]:
    """A run from which a site drops out."""
    return parts_of(make().fit(silent(rows_fed(**how), "south", since=5)), CENTRES)


def rounds_of_nodes(kind: Callable[[], Any], how: dict[str, Any]) -> dict[str, Any]:
    X = table()
    model = kind().fit(rows_fed(X[:100], **how))
    first = parts_of(model, NODES)
    second = parts_of(model.partial_fit(rows_fed(X + np.array([0.5, 2.0, 0.1, 0.0]), **how)), NODES)
    return {"first": first, "second": second, "third": parts_of(model.partial_fit(rows_fed(X * 2, **how)), NODES, NEW)}


def private_rows() -> fc.Federation:
    rng = np.random.default_rng(25)
    return np.repeat([[-4.0, 0.0, 2.0], [4.0, 1.0, 0.0], [0.0, 6.0, -3.0]], 50, axis=0) + rng.normal(size=(150, 3))


def under_noise(make: Callable[[], Any], how: dict[str, Any]) -> dict[str, Any]:
    X = private_rows()
    fed = fc.Federation.local({f"s{i}": X[i::4] for i in range(4)}, **how)
    with fixed_noise():
        return {**parts_of(make().fit(fed), PRIVATE, X[:9]), "messages": messages(fed)}


def private_models() -> None:
    """Noise is drawn from the operating system: with other noise the same runs are deterministic, and recorded so."""
    made = {
        "c-means/projected": partial(fc.PrivateKMeans, 3, epsilon=8.0, bounds=(-12, 12)),
        "c-means/range-of-k": partial(fc.PrivateKMeans, (2, 5), epsilon=8.0, bounds=(-12, 12), scale="minmax"),
        "c-means/lloyd": partial(fc.PrivateKMeans, 3, epsilon=8.0, bounds=(-12, 12), variant="lloyd", rounds=3),
        "fuzzy-c-means/m-2": partial(fc.PrivateFuzzyCMeans, 3, epsilon=8.0, bounds=(-12, 12)),
        "fuzzy-c-means/m-1.7": partial(fc.PrivateFuzzyCMeans, 3, m=1.7, epsilon=8.0, bounds=(-12, 12)),
    }
    for name, make in made.items():
        for mode in ("plain", "secure", "blind"):
            run = partial(under_noise, make, MODES[mode])
            add(f"private/{name}/{mode}", run, needs=("opendp",))
            if mode == "plain":
                SCENARIOS.append((run, False, ("opendp",)))


def deep_rows() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(26)
    base = rng.uniform(size=(3, 8))
    held = {"a": (0, 1), "b": (1, 2), "c": (2, 0), "d": (0, 1)}
    rows = {
        p: np.clip(np.repeat(base[list(own)], 20, axis=0) + rng.normal(0, 0.05, (40, 8)), 0, 1)
        for p, own in held.items()
    }
    return rows, {p: rng.permutation(np.r_[np.zeros(20), np.ones(20)]).astype(np.int64) for p in held}


def communities(how: dict[str, Any], *, labelled: bool, **options: Any) -> dict[str, Any]:
    rows, labels = deep_rows()
    fed = fc.Federation.local(rows, **how)
    if labelled:
        options["init"] = labels
    model = fc.FedCRef(2, **options)
    noise = fixed_noise() if "epsilon" in options else contextlib.nullcontext()
    with one_thread_of_torch(), noise:
        model.fit(fed)
        what = (*COMMUNITIES, *(("prices", "honest", "epsilon", "reported epsilon") if "epsilon" in options else ()))
        return {**parts_of(model, what), "predicted": model.predict(rows["a"], "a"), "messages": messages(fed)}


def embedded() -> dict[str, Any]:
    rows, _ = deep_rows()
    with one_thread_of_torch():
        model = fc.DEC(3, encoder=(10, 3), layer_steps=8, fine_steps=10, refresh=5, max_steps=10)
        return parts_of(model.fit(np.concatenate(list(rows.values()))), CODES, rows["a"])


def deep_models() -> None:
    quick = {"epochs": 8, "rounds": 3, "group_epochs": 2, "max_iterations": 2, "closing": 1, "closing_epochs": 2}
    quick |= {"rate": 0.01}
    made: dict[str, dict[str, Any]] = {
        "kmeans": {"labelled": False, "bounds": (0, 1), **quick},
        "given": {"labelled": True, **quick},
        "paper": {"labelled": False, "bounds": (0, 1), "association": "paper", **quick},
        "rival": {"labelled": False, "association": "rival", "remember": False, "sure": 1.0, **quick},
        "private": {"labelled": False, "bounds": (0, 1), "epsilon": 50.0},
        "private-given": {"labelled": True, "bounds": (0, 1), "epsilon": 50.0},
    }
    for name, options in made.items():
        needs = ("torch", "opendp") if "epsilon" in options else ("torch",)
        for mode in ("plain", "secure") if name in {"kmeans", "private"} else ("plain",):
            run = partial(communities, MODES[mode], **options)
            add(f"deep/fedcref/{name}/{mode}", run, processor=True, needs=needs)
            if mode == "plain":
                SCENARIOS.append((run, True, needs))
    add("deep/dec", embedded, processor=True, needs=("torch",))


def chosen(kind: Any, fed: Callable[..., fc.Federation], how: dict[str, Any], **options: Any) -> dict[str, Any]:
    where = fed(**how)
    found = fc.select_k(kind(max_iter=10), where, **options)
    return {**selected(found), "messages": messages(where)}


def far_groups_fed(**how: Any) -> fc.Federation:
    """Rows of groups with valleys between them, so that every question of a choice is asked."""
    rng = np.random.default_rng(5)
    means = np.repeat(rng.uniform(-20, 20, (6, 3)), 30, axis=0)
    flags = (rng.random((180, 1)) < 0.3).astype(float)
    rows = np.concatenate([means + rng.standard_t(3, size=(180, 3)), flags], axis=1)
    return fc.Federation.local({f"p{i}": rows[i::3] for i in range(3)}, **how)


def grow_centers_over_sites() -> None:
    """The questions that a site otherwise asks only itself, when it looks for its own K."""

    def script() -> Any:
        frame = yield from mixture.make_frame((yield from bounds.agree_on_bounds(len(NAMES))), full=False)
        return (yield from grow_centers(frame, 3))

    rows_fed().run(script())


def floored_choice() -> None:
    """The questions of a choice that opens no sums of few rows."""

    def script() -> Any:
        view = yield from bounds.agree_on_bounds(4)
        return (yield from choose_groups(view, seed=0, floor=10, everyone=True))

    far_groups_fed().run(script())


def choices_of_k() -> None:
    SCENARIOS.append((grow_centers_over_sites, False, ()))
    SCENARIOS.append((floored_choice, False, ()))
    made: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
        "evidence": (fc.FuzzyCMeans, rows_fed, {}, "plain"),
        "evidence-given": (fc.KMeans, rows_fed, {"ks": [2, 3, 4]}, "plain"),
        "evidence-secure": (fc.KMeans, rows_fed, {"ks": [1, 2, 3]}, "secure"),
        "evidence-mixture": (fc.GaussianMixture, rows_fed, {"ks": [2, 3]}, "plain"),
        "evidence-groups": (fc.KMeans, far_groups_fed, {}, "plain"),
        "index-sites": (fc.KMeans, rows_fed, {"criterion": "index", "ks": [2, 3], "stability": "sites"}, "plain"),
        "index": (fc.FuzzyCMeans, rows_fed, {"criterion": "index", "restarts": 2}, "plain"),
        "index-elbow": (fc.KMeans, rows_fed, {"ks": range(2, 6), "index": "xie-beni", "rule": "elbow"}, "plain"),
        "index-secure": (fc.KMeans, rows_fed, {"ks": [2, 3], "index": "davies-bouldin", "restarts": 2}, "secure"),
        "index-columns": (fc.FuzzyCMeans, columns_fed, {"ks": [2, 3, 4], "restarts": 2}, "plain"),
    }
    for name, (kind, fed, options, mode) in made.items():
        run = partial(chosen, kind, fed, MODES[mode], **options)
        add(f"choice/{name}", run)
        if mode == "plain":
            SCENARIOS.append((run, False, ()))


def indexed(kind: Any, fed: Callable[..., fc.Federation], how: dict[str, Any]) -> dict[str, Any]:
    where = fed(**how)
    model = kind(3, init=START, max_iter=6).fit(where)
    found = fc.indices.scores(model, where, INDICES, p=1.5, q=2.0)
    return {"scores": [found[name] for name in INDICES], "one": fc.indices.fuzzy_davies_bouldin(model, where)}


def agreed(fed: Callable[..., fc.Federation], how: dict[str, Any]) -> dict[str, Any]:
    where = fed(**how)
    truth = np.arange(120) * 7 % 4
    model = fc.KMeans(3, init=START, max_iter=6).fit(where)
    classes = truth if where.split == "columns" else dict(zip(parts(), np.split(truth, CUTS), strict=True))
    counts = fc.agreement.contingency(model, where, classes)
    other = np.array(START) + 1.0
    gaps = [fc.agreement.displacement(model.cluster_centers_, other)]
    if where.split == "rows":
        gaps.append(fc.agreement.knowledge_gap(model.cluster_centers_, other, where))
    named = (fc.agreement.ari, fc.agreement.ami, fc.agreement.nmi, fc.agreement.accuracy)
    return {"table": counts, "agreement": [one(counts) for one in named], "gaps": gaps}


def features(X: Callable[[], Any], how: dict[str, Any], missing: str) -> dict[str, Any]:
    wide = np.column_stack([X(), X()[:, 0] * 2.5 + 1, np.ones(120)])
    fed = fc.Federation.local(parts(wide), **how)
    found = fc.select_features(fed, missing=missing)
    return {"kept": found.kept, "dropped": list(found.dropped), "variance": found.variance, "pairs": found.correlation}


HOW_TO_FORGET = {"anew": "redraw"}


def forgotten(kind: Any, how: str, **gone: Any) -> dict[str, Any]:
    fed = rows_fed()
    model = kind(3).fit(fed)
    return certified(model, fed, CENTRES, how=HOW_TO_FORGET.get(how, how), **gone)


def told_of(make: Callable[[], Any], fed: Callable[..., fc.Federation], how: dict[str, Any]) -> dict[str, Any]:
    where = fed(**how)
    return described(make().fit(where), where)


def ranked() -> list[Any]:
    scores = np.random.default_rng(27).normal(size=(9, 4)) + np.array([0.0, 0.5, 1.0, 1.5])
    found = method_ranks.compare(scores, ["a", "b", "c", "d"])
    tests = [found.chi_square, found.p_value, found.f_statistic, found.f_p_value, found.distance]
    return [found.names, found.ranks, found.p_values, found.blocks, *tests, found.groups()]


def analyses() -> None:
    for split, fed in (("rows", rows_fed), ("columns", columns_fed)):
        for method, kind in (("c-means", fc.KMeans), ("fuzzy-c-means", fc.FuzzyCMeans)):
            for mode in ("plain", "secure", "blind"):
                for backend in TWICE:
                    run = partial(indexed, kind, fed, MODES[mode])
                    add(f"indices/{split}/{method}/{mode}/{backend}", run, backend=backend)
            SCENARIOS.append((partial(indexed, kind, fed, {}), False, ()))
        for mode in ("plain", "secure", "blind"):
            add(f"agreement/{split}/{mode}", partial(agreed, fed, MODES[mode]))
        SCENARIOS.append((partial(agreed, fed, {}), False, ()))
    for missing, X in (("refuse", table), ("drop", gapped), ("partial", gapped)):
        for mode in ("plain", "secure", "blind"):
            add(f"features/{missing}/{mode}", partial(features, X, MODES[mode], missing))
        SCENARIOS.append((partial(features, X, {}, missing), False, ()))
    for method, kind in (("c-means", fc.KMeans), ("fuzzy-c-means", fc.FuzzyCMeans), ("mufc", fc.MUFC)):
        for how in ("replay", "anew", "quick"):
            run = partial(forgotten, kind, how, site="south", rows=[0, 3, 8], check=how == "quick")
            add(f"unlearning/{method}/{how}", run)
        site = partial(forgotten, kind, "replay", site="west")
        add(f"unlearning/{method}/site", site)
        SCENARIOS.append((site, False, ()))
    for name, make in {
        "c-means": partial(fc.KMeans, 3, init=START, max_iter=6),
        "fuzzy-c-means": partial(fc.FuzzyCMeans, 3, m=1.7, scale="standardise", max_iter=6),
        "gaussian-mixture": partial(fc.GaussianMixture, 3, max_iter=6),
        "fcac": fc.SummaryClustering,
    }.items():
        for mode in ("plain", "secure", "blind"):
            add(f"description/rows/{name}/{mode}", partial(told_of, make, rows_fed, MODES[mode]))
        SCENARIOS.append((partial(told_of, make, rows_fed, {}), False, ()))
        if name in {"c-means", "fuzzy-c-means"}:
            add(f"description/columns/{name}", partial(told_of, make, columns_fed, {}))
    add("statistics", ranked, processor=True)


def drawn_rows() -> None:
    """Rows drawn from a seed, and rows dealt to sites: what published figures are computed on."""
    y = np.arange(120) * 7 % 4
    splits: dict[str, dict[str, Any]] = {
        "iid": {},
        "dirichlet": {"how": "dirichlet", "alpha": 0.5, "minimum": 3},
        "classes": {"how": "classes"},
        "published": {"setting": "fcac"},
    }
    for name, how in splits.items():
        add(f"draws/split-{name}", partial(fc.datasets.split_indices, table(), y, 5, **how, seed=1))
    published = partial(fc.datasets.split_indices, table()[:, :1].repeat(5, axis=0), y.repeat(5), 3, "dirichlet")
    add("draws/split-published-dirichlet", partial(published, setting="fcac", seed=2), processor=True)
    add("draws/motivational", lambda: fc.datasets.motivational(1)[0], processor=True)
    add("draws/g2", lambda: list(fc.datasets.g2(30, 3, 5)), processor=True)
    add("draws/mixture", lambda: list(fc.datasets.mixture(4, 3, 200, 6)), processor=True)
    add("draws/deep-sites", lambda: deep_sites(y.repeat(9)), processor=True)
    add("draws/published-noise", partial(row_noise.add_published_noise, table(), 15.0), processor=True)


def deep_sites(y: Any) -> list[Any]:
    found = populate(y, 4, classes=(2, 3), per_class=20, overlap=0.3, dirt=0.3, seed=3)
    return [found.rows, found.classes, found.start]


def floored_fits() -> None:
    floored = {"opening": "floored", "floor": 8, **QUICK}
    for setting, options in {"given": {"init": START}, "standardised": {"scale": "standardise", "init": "box"}}.items():
        make = partial(fc.KMeans, 3, **floored, **options)
        for mode in ("plain", "secure", "blind"):
            run = partial(fitted, make, CENTRES, rows_fed, MODES[mode], NEW)
            for backend in backends("given", mode):
                add(f"floored/{setting}/{mode}/{backend}", run, backend=backend)
        SCENARIOS.append((partial(fitted, make, CENTRES, rows_fed, MODES["plain"], NEW), False, ()))
    for backend in TWICE:
        add(f"floored/pooled/{backend}", partial(pooled, partial(fc.KMeans, 3, **floored)), backend=backend)
    SCENARIOS.append((partial(pooled, partial(fc.KMeans, 3, **floored)), False, ()))
    for name, made in {"described": described_floored, "chosen-k": chosen_floored}.items():
        add(f"floored/{name}", made)
        SCENARIOS.append((made, False, ()))


def described_floored() -> dict[str, Any]:
    """The description of clusters of which some stay closed."""
    fed = rows_fed()
    return described(fc.KMeans(3, opening="floored", floor=8, **QUICK).fit(fed), fed)


def chosen_floored() -> dict[str, Any]:
    """A fit that starts from the cells of a choice of K."""
    fed = far_groups_fed()
    found = fc.select_k(fc.KMeans(opening="floored", floor=8, scale="standardise", random_state=0), fed)
    return {"k": found.k, "model": parts_of(found.model, CENTRES), "document": described(found.model, fed)}


def verified_fits() -> None:
    add("verified/fuzzy-c-means", verified_fit)
    SCENARIOS.append((verified_fit, False, ()))


def verified_fit() -> dict[str, Any]:
    """What a verified run asks of its sites besides; the sites of this process replay nothing."""
    fed = rows_fed(**MODES["secure"])
    fed._aggregator._secure.verified = True
    model = fc.FuzzyCMeans(3, init=START, max_iter=3, tol=None).fit(fed)
    fed.run(confirm_model(bytes(range(32))))
    return parts_of(model, CENTRES)


# --- Handlers --------------------------------------------------------------------------------------------------------

MASKS = "keys, shares and masks are fresh in each run"
SHARES = "shares of distances are random to whoever sees one"
LISTS = "ids travel under fresh secret factors, among fillers, shuffled"
TOLD = "rows that were summarised are remembered by marks under a fresh key"
CARRIER = "only carries another handler's answer: the site answers what is encrypted"
COUNTS = "counts are hidden by fresh secrets, and what was found of them is signed by a fresh key"
RANDOM: dict[str, dict[str, str]] = {  # by handler, what of it is random by nature, and why
    "roster.offer": {"answer": MASKS, "question": MASKS},
    "roster.accept": {"question": MASKS},
    "recovery.share": {"answer": MASKS, "question": MASKS},
    "recovery.consent": {"answer": MASKS, "question": MASKS},
    "recovery.unmask": {"answer": MASKS, "question": MASKS},
    "blind.group": {"question": MASKS},
    "blind.add": {"answer": CARRIER, "question": CARRIER},
    "blind.tell": {"answer": CARRIER, "question": CARRIER},
    "align.set_out": {"answer": LISTS, "memory": LISTS},
    "align.pass_on": {"answer": LISTS, "question": LISTS, "memory": LISTS},
    "align.come_back": {"answer": LISTS, "question": LISTS, "memory": LISTS},
    "align.settle": {"question": LISTS},
    "vertical_labels.sit_down": {"answer": SHARES, "memory": SHARES},
    "vertical_labels.get_to_know": {"question": SHARES, "memory": SHARES},
    "vertical_labels.hand_over": {"answer": SHARES, "question": SHARES},
    "vertical_labels.enter": {"answer": SHARES, "question": SHARES, "memory": SHARES},
    "vertical_labels.go_on": {"answer": SHARES, "question": SHARES, "memory": SHARES},
    "floored_opening.make_secret": {"answer": COUNTS, "memory": COUNTS},
    "floored_opening.receive_secret": {"question": COUNTS, "memory": COUNTS},
    "floored_opening.share_counts": {"answer": COUNTS},
    "floored_opening.hide_counts": {"answer": COUNTS, "question": COUNTS},
    "floored_opening.find_allowed": {"answer": COUNTS, "question": COUNTS},
    "floored_opening.hide_counts_from_coordinator": {"answer": COUNTS},
    "floored_opening.open_moments": {"question": COUNTS, "memory": COUNTS},
    "fcac_summaries.summaries": {"memory": TOLD},
    "group_key.send_group_key": {"answer": MASKS},
    "group_key.receive_group_key": {"question": MASKS},
    "vertical_labels.move": {"memory": SHARES},
    "vertical_labels.finish": {"answer": SHARES, "question": SHARES, "memory": SHARES},
}
EACH, IN_ALL = 3, 4  # questions of a handler in a scenario, and scenarios
PARTS = ("question", "answer", "memory")


@dataclasses.dataclass
class Seen:
    """What a handler was asked and gave, and whether that may depend on the processor."""

    question: list[Any] = dataclasses.field(default_factory=list)
    answer: list[Any] = dataclasses.field(default_factory=list)
    memory: list[Any] = dataclasses.field(default_factory=list)
    scenarios: list[int] = dataclasses.field(default_factory=list)
    processor: bool = False


@cache
def seen_of_handlers() -> dict[str, Seen]:
    """Every handler's first answers over the scenarios, by the name it was recorded under."""
    first = {now: recorded for recorded, now in RENAMED.items()}
    found: dict[str, Seen] = {}
    for number, (run, processor, needs) in enumerate(SCENARIOS):
        if any(importlib.util.find_spec(name) is None for name in needs):
            continue

        def keep(name: str, question: Any, release: Any, memory: Any, number=number, processor=processor) -> None:
            own = found.setdefault(first.get(name, name), Seen())
            others = len(set(own.scenarios) - {number})
            if own.scenarios.count(number) >= EACH or others >= IN_ALL:
                return
            own.scenarios.append(number)
            own.question.append(digest(question))
            own.answer.append(digest(release))
            own.processor |= processor
            # What is remembered goes by names that are no part of a result: only the values count, in any order.
            kept = None if memory is None else sorted(digest(value) for value in memory.values())
            own.memory.append(kept)

        with recorded_answers(keep):
            DIGESTS[run] = digest(run())
    return found


def handler_values() -> dict[str, dict[str, Any]]:
    """The value of each part of each handler that is not random by nature."""
    values: dict[str, dict[str, Any]] = {}
    for name, seen in sorted(seen_of_handlers().items()):
        for part in PARTS:
            listed = getattr(seen, part)
            if part in RANDOM.get(name, {}) or (part == "memory" and not any(kept is not None for kept in listed)):
                continue
            value: dict[str, Any] = {"value": digest(listed)}
            values[f"handler/{name}/{part}"] = value | ({"processor": True} if seen.processor else {})
    return values


over_rows()
over_columns()
other_fits()
analyses()
choices_of_k()
private_models()
deep_models()
drawn_rows()
floored_fits()
verified_fits()
