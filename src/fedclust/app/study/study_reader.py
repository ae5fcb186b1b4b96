"""Reads and validates a study file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedclust.app.study import toml_text
from fedclust.app.study.study_columns import check_no_repeats, parse_columns
from fedclust.app.study.study_keys import (
    ALIGN_KEYS,
    CHOICE_KEYS,
    PRIVACY_KEYS,
    REQUIRED_KEYS,
    SITE_KEYS,
    STUDY_KEYS,
    check_table,
    cluster_keys,
    parse_k_range,
)
from fedclust.app.study.study_parts import ClusterSettings, KSearch, Study, StudySite
from fedclust.app.study.verification import decide_verification
from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import StudyError
from fedclust.federation.aggregation import Aggregation
from fedclust.models.methods import find_study_method, method_registry, private_methods
from fedclust.questions.alignment import Alignment


def read_study(path: str | Path, *, folder: Path | None = None, served: bool = False) -> Study:
    """Read a study file; relative paths in it start at `folder`, by default the file's own.

    A study for `served` sites may leave out their sources, which the sites set themselves.
    """
    path = Path(path)
    if path.is_dir():
        raise StudyError(f"{path} is a folder; name the study file in it, such as {path / 'study.toml'}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise StudyError(f"there is no study at {path}; check the path") from None
    except UnicodeDecodeError:
        raise StudyError(f"{path} is not UTF-8 text; a study is a TOML file") from None
    return parse_study(text, folder=path.parent if folder is None else folder, path=path, served=served)


def parse_study(text: str, *, folder: Path, path: Path = Path("study.toml"), served: bool = False) -> Study:
    """Read a study from its text."""
    top = check_table(toml_text.parse_toml(text, path), STUDY_KEYS, "the study")
    for name, remedy in REQUIRED_KEYS.items():
        if not top.get(name):
            raise StudyError(f"the study lacks {remedy}")
    split, privacy = top.get("split", "rows"), check_table(top.get("privacy", {}), PRIVACY_KEYS, "[privacy]")
    schema, align = parse_columns(top), _parse_alignment(top)
    if align is not None:
        own = "the site's own" if served else None  # a remote site may name its id column itself
        align.check_split(split, top.get("id", own), privacy.get("aggregation", "plain"))
    cluster = _parse_cluster(top["cluster"], top.get("seed", 0), private="epsilon" in privacy)
    cluster = _apply_opening(cluster, privacy, split=split, missing=top.get("missing", "refuse"))
    quorum, many = cluster.options.get("quorum"), len(top["sites"])
    if isinstance(quorum, int) and quorum > many:
        raise StudyError(
            f"quorum in [cluster] is {quorum}, but the study has {many} site{'s' if many > 1 else ''}; "
            f"give a number from 1 to {many}, a share such as 0.8, or 'all'"
        )
    study = Study(
        name=top["name"],
        text=text,
        cluster=cluster,
        noise=_parse_noise(privacy),
        sites=tuple(_parse_site(name, table, split, folder, served=served) for name, table in top["sites"].items()),
        columns=None if schema is None else tuple(schema),
        schema=schema or {},
        scale=top.get("scale", "none"),
        missing=top.get("missing", "refuse"),
        split=split,
        id=top.get("id"),
        bounds=_parse_bounds(top.get("bounds")),
        aggregation=Aggregation(
            privacy.get("aggregation", "plain"), privacy.get("lead"), privacy.get("early_stopping", False)
        ),
        align=align,
        seed=top.get("seed", 0),
    )
    return replace(study, is_verified=decide_verification(study, wanted=privacy.get("verified")))


def _parse_noise(privacy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of differential privacy, under the estimators' parameter names; empty if there are none."""
    given = {name: privacy[name] for name in ("epsilon", "delta", "variant") if name in privacy}
    if given and "epsilon" not in given:
        raise StudyError(f"[privacy] gives {next(iter(given))} but no epsilon; add a line such as epsilon = 1.0")
    return given


def _apply_opening(
    cluster: ClusterSettings, privacy: Mapping[str, Any], *, split: str, missing: str
) -> ClusterSettings:
    """Add to the settings which sums are opened: above a floor where the method and the study allow it."""
    given = {name: privacy[name] for name in ("opening", "floor") if name in privacy}
    reason = _why_exact(cluster, privacy, split=split, missing=missing)
    if given.get("opening", "floored" if not reason else "exact") == "exact":
        if "floor" in given:
            why = reason or 'opening is "exact"'
            raise StudyError(f'floor in [privacy] needs opening = "floored", but {why}; leave floor out')
        return cluster
    if reason:
        raise StudyError(f"opening in [privacy] is 'floored', but {reason}; set opening to 'exact', or leave it out")
    return replace(cluster, options={**cluster.options, "opening": "floored", **given})


def _why_exact(cluster: ClusterSettings, privacy: Mapping[str, Any], *, split: str, missing: str) -> str:
    """Return why a study cannot open sums above a floor, or an empty text."""
    parameters, options = find_study_method(cluster.method).estimator().get_params(), cluster.options
    if "opening" not in parameters:
        return f"method '{cluster.method}' opens every sum"
    if "epsilon" in privacy:
        return "epsilon hides sums by noise"
    if split != "rows":
        return "this is a column split"
    if missing == "partial":
        return "missing is 'partial'"
    for name, usual in (("quorum", "all"), ("participation", 1), ("singletons", None), ("small_sites", None)):
        if options.get(name, usual) != usual:
            return f"{name} in [cluster] is set"
    return ""


def _parse_alignment(top: Mapping[str, Any]) -> Alignment | None:
    if "align" not in top:
        return None
    table = check_table(top["align"], ALIGN_KEYS, "[align]")
    return Alignment(table.get("method", "psi"), table.get("duplicates", "refuse"))


def _parse_cluster(table: Mapping[str, Any], seed: int, *, private: bool = False) -> ClusterSettings:
    named = table.get("method")
    if isinstance(named, str) and named in method_registry().broken_plugins:
        find_study_method(named)  # reports what is wrong with its package
    check_table(table, cluster_keys(named), "[cluster]")
    finds = _method_finds_k(table)
    if private:
        return _parse_private_cluster(table, seed)
    if not finds and "k" not in table:
        start = table.get("init")
        table = {**table, "k": len(start) if isinstance(start, list) else "auto"}
    taken = find_study_method(table["method"]).parameters
    options: dict[str, Any] = {"random_state": seed}
    for name, value in table.items():
        if name == "seed":
            options["random_state"] = value
        elif name not in {"method", "k", *CHOICE_KEYS}:
            if name not in taken:
                raise StudyError(f"method '{table['method']}' has no setting {name}; leave it out of [cluster]")
            options[name] = None if value == "none" else value
    start, choice = table.get("init"), None if finds else _parse_choice(table)
    if isinstance(start, list) and choice is not None:
        raise StudyError("init in [cluster] gives centres, but k is not a number; set k to the number of centres")
    if isinstance(start, list) and len(start) != table["k"]:
        raise StudyError(
            f"init in [cluster] gives {count_noun(len(start), 'centre')}, but k is {table['k']}; give "
            "one for each cluster"
        )
    return ClusterSettings(table["method"], None if choice else table.get("k"), options, choice)


def _parse_private_cluster(table: Mapping[str, Any], seed: int) -> ClusterSettings:
    """Read [cluster] under differential privacy, where k is chosen from the noisy counts of the run itself."""
    private = private_methods()
    if table["method"] not in private:
        raise StudyError(
            f"method '{table['method']}' does not support differential privacy; set method to {' or '.join(private)}, "
            "or remove epsilon"
        )
    if "k" not in table:
        raise StudyError("[cluster] has no k, which is needed with epsilon; give a number, or a range such as '2..8'")
    taken, ends = private[table["method"]]().get_params(), parse_k_range(table["k"])
    options: dict[str, Any] = {"random_state": table.get("seed", seed), "n_clusters": ends or table["k"]}
    if table["k"] == "auto":
        raise StudyError("k in [cluster] is 'auto', which is not possible with epsilon; give a range such as '2..8'")
    for name, value in table.items():
        if name not in {"method", "k", "seed"}:
            if name not in taken:
                raise StudyError(f"{name} in [cluster] cannot be used with epsilon in [privacy]; leave one of them out")
            options[name] = value
    return ClusterSettings(table["method"], None if ends else table["k"], options)


def _method_finds_k(table: Mapping[str, Any]) -> bool:
    """Return whether the method finds k itself; if so, the study must not give k."""
    if "method" not in table:
        raise StudyError('[cluster] has no method; add a line such as method = "fuzzy-c-means"')
    finds = find_study_method(table["method"]).finds_k
    for name in ("k", *CHOICE_KEYS) if finds else ():
        if name in table:
            raise StudyError(f"method '{table['method']}' finds the number of clusters; leave {name} out of [cluster]")
    return finds


def _parse_choice(table: Mapping[str, Any]) -> KSearch | None:
    """Return how to choose k; None if it is a number."""
    how = {name: table[name] for name in CHOICE_KEYS if name in table}
    if isinstance(table["k"], int):
        for name in how:
            raise StudyError(
                f"{name} in [cluster] says how to choose k, but k is {table['k']}; set k to a range such as '2..8'"
            )
        return None
    by_index = KSearch(options=how).is_by_index
    if how.get("criterion") == "evidence" and ("index" in how or "rule" in how):
        raise StudyError("criterion 'evidence' does not use index or rule; leave these out, or leave out the criterion")
    if "restarts" in how and not by_index:
        raise StudyError('restarts in [cluster] needs criterion = "index", which fits every k several times')
    ends = parse_k_range(table["k"])
    return KSearch(None if ends is None else tuple(range(ends[0], ends[1] + 1)), how)


def _parse_site(name: str, table: Any, split: str, folder: Path, *, served: bool) -> StudySite:
    place = f"[sites.{name}]"
    if not isinstance(table, dict):
        raise StudyError(f'{name} in [sites] must be a table; write [sites.{name}] with source = "FILE" below it')
    check_table(table, SITE_KEYS, place)
    if "source" not in table and not served:
        raise StudyError(f'{place} has no source; add source = "FILE"')
    if "columns" in table and split == "rows":
        raise StudyError(
            f'{place} lists its own columns, but this needs split = "columns"; list the columns at the top instead'
        )
    columns = tuple(table["columns"]) if "columns" in table else None
    check_no_repeats(columns or (), f"columns in {place}")
    source = _resolve_source(table["source"], folder, place) if "source" in table else ""
    return StudySite(name, source, table.get("policy", "none"), columns, tuple(table.get("packages", ())))


def _resolve_source(given: str | dict[str, Any], folder: Path, place: str) -> Path | str | Mapping[str, str]:
    """Return the source of the rows; relative paths start at the study's folder."""
    if isinstance(given, str):
        return given if "://" in given else folder / Path(given).expanduser()
    for key, value in given.items():
        if key not in {"sql", "database"} or not isinstance(value, str):
            raise StudyError(
                f'source of {place} has {key!r}; it accepts sql = "SELECT ..." and database = "...", both strings'
            )
    database = given.get("database")
    if database is None or database == ":memory:":
        return {**given, "folder": str(folder)}  # relative file names in the SQL start at the study's folder
    if "://" in database:
        return given
    return {**given, "database": str(folder / Path(database).expanduser())}


def _parse_bounds(bounds: Any) -> tuple[float, float] | dict[str, tuple[float, float]] | None:
    if isinstance(bounds, dict):
        return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))
