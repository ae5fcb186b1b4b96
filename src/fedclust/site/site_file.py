"""A site's own file: where its rows are, who it is, what its rules are, and whose approval it waits for.

It lies at the site and is written by the site. Nothing that comes from a study or a coordinator can change it.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedclust.core.effects import HANDLERS
from fedclust.core.errors import StudyError
from fedclust.core.release import FIELD_CLASSES
from fedclust.privacy.accountant import MAX_DELTA
from fedclust.privacy.keys import Identity
from fedclust.questions.schema import Schema
from fedclust.site.approval import Approval, read_terms, roster_digest
from fedclust.site.policy import AGGREGATION_STRENGTH, PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.sources import open_source, sort_by_id
from fedclust.site.sources.noised_rows import MECHANISMS, LocalNoise, NoisedSource
from fedclust.site.vault import Vaults

SITE_ONLY_KEYS = (
    "source",
    "policy",
    "packages",
)  # of a study's [sites.NAME]: what a served site takes from its own file only


@dataclass(frozen=True)
class KeyRule:
    """What a key takes, in words and as a test."""

    description: str
    is_valid: Callable[[Any], bool]


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _are_handler_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name in HANDLERS for name in value)


COUNT_RULE = KeyRule("a whole number; 0 is no rule", _is_whole_number)
BOOLEAN_RULE = KeyRule("true or false", lambda value: isinstance(value, bool))
TEXT_RULE = KeyRule("a text", lambda value: isinstance(value, str) and bool(value))
TABLE_RULE = KeyRule("a table", lambda value: isinstance(value, dict))
QUESTIONS_RULE = KeyRule('a list of questions, such as ["bounds.count_rows", "row_split.moments"]', _are_handler_names)
SITE_FILE_KEYS = {
    "name": TEXT_RULE,
    "source": KeyRule(
        'a path, or a table such as { sql = "SELECT ...", database = "FILE" }',
        lambda value: TEXT_RULE.is_valid(value) or (isinstance(value, dict) and set(value) <= {"sql", "database"}),
    ),
    "id": TEXT_RULE,
    "state": TEXT_RULE,
    "identity": TEXT_RULE,
    "coordinator": TEXT_RULE,
    "steward": TEXT_RULE,
    "approval": TEXT_RULE,
    "policy": TABLE_RULE,
    "noise": TABLE_RULE,
    "roster": TABLE_RULE,
}
POLICY_KEYS = {
    "profile": KeyRule(f"one of {', '.join(PROFILES)}", lambda value: value in PROFILES),
    "min_rows": COUNT_RULE,
    "min_cell": COUNT_RULE,
    "max_share": KeyRule("a number from 0 to 1; 0 is no rule", lambda value: _is_number(value) and value <= 1),
    "max_ratio": KeyRule("a number of at least 0; 0 is no rule", _is_number),
    "min_parties": COUNT_RULE,
    "aggregation": KeyRule(f"one of {', '.join(AGGREGATION_STRENGTH)}", lambda value: value in AGGREGATION_STRENGTH),
    "one_cohort": BOOLEAN_RULE,
    "groups": BOOLEAN_RULE,
    "cohort_gap": COUNT_RULE,
    "points": BOOLEAN_RULE,
    "weights": BOOLEAN_RULE,
    "rounding": COUNT_RULE,
    "max_calls": COUNT_RULE,
    "epsilon": KeyRule("a number of at least 0; 0 is no rule", _is_number),
    "delta": KeyRule(
        f"a number from 0 to {MAX_DELTA:g}; 0 is 1e-6", lambda value: _is_number(value) and value <= MAX_DELTA
    ),
    "max_ids": KeyRule("a number of at least 0; 0 is no rule", _is_number),
    "max_alignments": COUNT_RULE,
    "handlers": QUESTIONS_RULE,
    "withheld": QUESTIONS_RULE,
    "packages": KeyRule(
        'a list of Python packages, such as ["fedclust", "our_methods"]',
        lambda value: isinstance(value, list) and all(isinstance(name, str) and name for name in value),
    ),
    "classes": KeyRule(
        f"a list of classes out of {', '.join(FIELD_CLASSES)}",
        lambda value: isinstance(value, list) and set(map(str, value)) <= set(FIELD_CLASSES),
    ),
}


POSITIVE_RULE = KeyRule("a number above 0", lambda value: _is_number(value) and value > 0)
ROW_NOISE_KEYS = {
    "epsilon": POSITIVE_RULE,
    "bounds": KeyRule(
        "a pair [low, high], or a table of such pairs by column", lambda value: isinstance(value, (list, dict))
    ),
    "mechanism": KeyRule(f"one of {', '.join(MECHANISMS)}", lambda value: value in MECHANISMS),
    "budget": POSITIVE_RULE,
}


@dataclass(frozen=True)
class SiteFile:
    """A site file, validated."""

    name: str
    source: Path | str | Mapping[str, str]
    policy: Policy
    id: str | None = None
    state: Path | None = None
    identity: Path | None = None
    steward: Path | None = None
    approval: Path | None = None
    coordinator: bytes | None = None
    noise: LocalNoise | None = None  # under which alone rows are looked at
    roster: Mapping[str, bytes] = field(default_factory=dict)

    def open_server(
        self,
        *,
        columns: tuple[str, ...] | None = None,
        schema: Schema | None = None,
        seed: int = 0,
        id: str | None = None,  # noqa: A002 the study's word
        sort: bool = False,
        repeats: bool = False,
        split: str | None = None,
        method: str | None = None,
        needs_alignment: bool = False,
    ) -> SiteServer:
        """The site's desk, with what a study says of columns; keys, ledger and memory are in the site's folder.

        `sort` puts rows in the order of their `id`, as a split by columns needs them; ids may have `repeats` where the
        sites are to find out which rows they have in common.
        """
        if self.noise is not None and id not in (None, self.id):
            raise StudyError(
                f"the study takes '{id}' for the id of rows, which gets no noise; a site with [noise] names its own id"
            )
        spec = self.source if self.noise is None else NoisedSource(self.source, self.noise)
        source = open_source(spec, columns=columns, id=id or self.id, site=self.name, schema=schema, repeats=repeats)
        if sort:
            source = sort_by_id(source)
        return SiteServer(
            SiteData(self.name, source, schema),
            self.policy,
            seed=seed,
            folder=self.state,
            vaults=self._vaults_factory(),
            approval=self.load_approval(),
            split=split,
            method=method,
            needs_alignment=needs_alignment,
        )

    def load_approval(self) -> Approval | None:
        """The approval this site waits for, as its file has it now; None where it waits for none."""
        if self.approval is None or self.steward is None:
            return None
        return Approval(
            read_terms(self.approval, read_public_key(self.steward)),
            self.name,
            self.policy.digest,
            roster_digest(self.roster),
            version("fedclust"),
            self.noise.digest if self.noise else "",
        )

    @property
    def rehearsal_source(self) -> Any:
        """The source as a rehearsal reads it: under noise of its own where the site's rows are."""
        return self.source if self.noise is None else NoisedSource(self.source, self.noise.rehearsal_copy())

    def check_study(self, study: str) -> None:
        """Refuse a study, given as its text, that says where a site's rows are or what its rules are."""
        sites = tomllib.loads(study).get("sites", {})
        for name, own in sites.items() if isinstance(sites, dict) else ():
            for key in SITE_ONLY_KEYS:
                if isinstance(own, dict) and key in own:
                    raise StudyError(
                        f"the study gives {key} in [sites.{name}]; a served site takes that from its own site.toml only"
                    )

    def _vaults_factory(self) -> Callable[[], Vaults] | None:
        """One set of vaults for the life of a desk; keys that no folder keeps would be lost with the process."""
        if self.identity is None:
            return None
        if self.state is None:
            raise StudyError("the site file names an identity but no state; name a folder in which keys are kept")
        return cache(partial(Vaults, read_private_key(self.identity), self.roster, self.state))


def read_site_file(path: str | Path) -> SiteFile:
    """A site from its file; relative paths in it start where it lies."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        top = _check_table(tomllib.loads(text), SITE_FILE_KEYS, str(path))
    except FileNotFoundError:
        raise StudyError(f"there is no site file at {path}; check the path") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} is not TOML ({error}); correct it") from None
    for name in ("name", "source", "policy"):
        if name not in top:
            raise StudyError(f"{path} lacks {name}; a site file says its name, its source and its [policy]")
    if ("approval" in top) != ("steward" in top):
        raise StudyError(f"{path} names one of approval and steward; a signed approval needs both")
    if top["policy"].get("epsilon") and "state" not in top:
        raise StudyError(
            f"{path} has a privacy budget and no state; without a folder, what was spent would be forgotten"
        )
    folder = path.parent
    places = {
        key: folder / Path(top[key]).expanduser() for key in ("state", "identity", "steward", "approval") if key in top
    }
    noise = _check_table(top.get("noise", {}), ROW_NOISE_KEYS, f"[noise] of {path}")
    if noise and ("epsilon" not in noise or "state" not in top):
        raise StudyError(f"{path} has [noise] without epsilon or without state, where outcomes are kept; name both")
    site = SiteFile(
        top["name"],
        _resolve_source(top["source"], folder),
        policy_from_table(top["policy"], f"[policy] of {path}"),
        id=top.get("id"),
        noise=LocalNoise(**noise, folder=places["state"] / "noise") if noise else None,
        coordinator=parse_key(top["coordinator"], f"coordinator in {path}") if "coordinator" in top else None,
        roster=parse_roster(top.get("roster", {}), path),
        **places,
    )
    _check_identity(site)
    return site


def _check_identity(site: SiteFile) -> None:
    """Refuse an identity that the others do not know this site by: whatever it signs would be refused there.

    Who only looks at a study need not have the key.
    """
    if site.identity is None or site.name not in site.roster:
        return
    refuse_public_half(site.identity)
    if not os.access(site.identity, os.R_OK):
        return
    if Identity(parse_key(_read_key_text(site.identity), str(site.identity))).public != site.roster[site.name]:
        raise StudyError(
            f"identity is not the key that [roster] has for {site.name}; put what is in {site.identity}.pub into the "
            "[roster] of everyone, or name the key whose public half is there"
        )


def policy_from_table(table: Mapping[str, Any], place: str) -> Policy:
    """A profile, or none, with single rules put over it."""
    _check_table(table, POLICY_KEYS, place)
    base = PROFILES[table["profile"]] if "profile" in table else Policy("own")
    rules: dict[str, Any] = {
        name: frozenset(v) if isinstance(v, list) else v for name, v in table.items() if name != "profile"
    }
    return replace(base, name=f"{base.name}, changed" if rules and "profile" in table else base.name, **rules)


def make_key(path: Path) -> Path:
    """Make a signing key: the private half at a path, for its owner's eyes, the public half beside it."""
    if path.exists():
        raise StudyError(f"{path} exists; a key is never overwritten")
    path.touch(mode=0o600)
    identity = Identity.new()
    path.write_text(identity.private.hex() + "\n")
    public = path.with_name(f"{path.name}.pub")
    public.write_text(identity.public.hex() + "\n")
    return public


def read_private_key(path: Path) -> Identity:
    refuse_public_half(path)
    text = _read_key_text(path)
    check_key_permissions(path)
    return Identity(parse_key(text, str(path)))


def refuse_public_half(path: Path) -> None:
    """Refuse a key by its name: both halves are as many digits."""
    if path.suffix == ".pub":
        raise StudyError(f"{path} is a public half, which signs nothing; name {path.with_suffix('')}")


def check_key_permissions(path: Path) -> None:
    """Refuse a key that others on this machine can read: who has read it can sign with it.

    Another owner's may be lent to a group, as a secret that a service is handed is.
    """
    about = path.stat()
    if hasattr(os, "getuid") and about.st_mode & (0o077 if about.st_uid == os.getuid() else 0o007):
        raise StudyError(
            f"others can read the private key at {path}; make it its owner's alone with: chmod 600 {path} "
            "(a stick with FAT knows no owners, and chmod changes nothing there: keep keys on this machine's disk)"
        )


def read_public_key(path: Path) -> bytes:
    return parse_key(_read_key_text(path), str(path))


def _read_key_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise StudyError(f"there is no key at {path}; make one with fedclust site key") from None


def parse_key(text: Any, place: str) -> bytes:
    """A public or private key from its 64 digits; `place` is where they stand."""
    try:
        key = bytes.fromhex(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != 32:
        raise StudyError(f"{place} is no key of 64 hexadecimal digits; fedclust site key makes one")
    return key


def parse_roster(table: Mapping[str, Any], path: Path) -> dict[str, bytes]:
    """Public keys by site; two sites with one key would be one that answers twice."""
    sites: dict[bytes, str] = {}
    for name, text in table.items():
        key = parse_key(text, f"[roster] of {path}, {name},")
        if key in sites:
            raise StudyError(f"[roster] of {path} gives '{sites[key]}' and '{name}' one key; each site has its own")
        sites[key] = name
    return {name: key for key, name in sites.items()}


def _resolve_source(given: Any, folder: Path) -> Path | str | Mapping[str, str]:
    if isinstance(given, str):
        return given if "://" in given else folder / Path(given).expanduser()
    database = given.get("database")
    if database is None or database == ":memory:":
        return {**given, "folder": str(folder)}
    if "://" in database:
        return dict(given)
    return {**given, "database": str(folder / Path(database).expanduser())}


def _check_table(table: Mapping[str, Any], known: Mapping[str, KeyRule], place: str) -> Mapping[str, Any]:
    for name, value in table.items():
        if name not in known:
            raise StudyError(
                f"{place} has no key '{name}'; {_suggest_key(name, known) or 'it may hold ' + ', '.join(known)}"
            )
        if not known[name].is_valid(value):
            raise StudyError(f"{name} in {place} does not fit; it must be {known[name].description}")
    return table


def _suggest_key(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.casefold(), list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else ""
