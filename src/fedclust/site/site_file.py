"""A site's own file: where its rows are, its identity, its rules, and the approval that it requires.

The site writes this file and keeps it. Nothing that comes from a study or a coordinator can change it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import StudyError
from fedclust.core.study_terms import StudyTerms
from fedclust.privacy.keys import Identity
from fedclust.questions.schema import Schema
from fedclust.site.approval import Approval, read_terms, roster_digest
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.server import SiteServer
from fedclust.site.site_data import SiteData
from fedclust.site.site_file_keys import POLICY_KEYS, ROW_NOISE_KEYS, SITE_FILE_KEYS, check_keys
from fedclust.site.sources import open_source, sort_by_id
from fedclust.site.sources.noised_rows import LocalNoise, NoisedSource
from fedclust.site.vault import Vaults
from fedclust.site.verified_run import ReplayOpener

SITE_ONLY_KEYS = (
    "source",
    "policy",
    "packages",
)  # keys of a study's [sites.NAME] that a served site takes only from its own file


def find_site_only_keys(study: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each site for which a study, parsed as TOML, sets such a key, and the key."""
    sites = study.get("sites")
    for name, own in sites.items() if isinstance(sites, dict) else ():
        yield from ((name, key) for key in SITE_ONLY_KEYS if isinstance(own, dict) and key in own)


@dataclass(frozen=True)
class SiteFile:
    """A site file, validated."""

    name: str
    source: Path | str | Mapping[str, str]
    policy: Policy
    id: str | None = None
    state: Path | None = None
    identity: Path | None = None
    stewards: tuple[Path, ...] = ()  # public keys of those who sign approvals
    approval: Path | None = None
    coordinator: bytes | None = None
    noise: LocalNoise | None = None  # the only noise under which rows are read
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
        floored: bool = False,
        needs_alignment: bool = False,
        promised: Callable[[tuple[str, ...]], StudyTerms] | None = None,
        open_replay: ReplayOpener | None = None,
    ) -> SiteServer:
        """Return the site's server, with the study's column declarations; keys, ledger and state are in the site's
        folder.

        `sort` orders rows by `id`, as a column split requires. Ids may have `repeats` if the sites are to find out
        which rows they have in common. `promised` builds the terms of the study for the source's columns.
        """
        if self.noise is not None and id not in (None, self.id):
            raise StudyError(
                f"the study uses '{id}' as the row id, but no noise is added to ids; a site with [noise] must "
                "set `id` in its own site file"
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
            floored=floored,
            needs_alignment=needs_alignment,
            terms=None if promised is None else promised(source.columns),
            open_replay=open_replay,
        )

    def load_approval(self) -> Approval | None:
        """Return the approval that this site requires, as its file is now; None if it requires none."""
        if self.approval is None or not self.stewards:
            return None
        return Approval(
            read_terms(self.approval, self.steward_keys(), self.policy.signatures),
            self.name,
            self.policy.digest,
            roster_digest(self.roster),
            version("fedclust"),
            self.noise.digest if self.noise else "",
        )

    def steward_keys(self) -> frozenset[bytes]:
        """Return the public keys of the stewards."""
        return frozenset(map(read_public_key, self.stewards))

    @property
    def rehearsal_source(self) -> Any:
        """Return the source as a rehearsal reads it: with separate noise if the site's rows have noise."""
        return self.source if self.noise is None else NoisedSource(self.source, self.noise.rehearsal_copy())

    def check_study(self, study: str) -> None:
        """Refuse a study, given as its text, that sets a site's source or rules."""
        for name, key in find_site_only_keys(tomllib.loads(study)):
            raise StudyError(
                f"the study sets {key} in [sites.{name}]; a site that runs on its own takes it only from its "
                "site.toml, so remove it from the study"
            )

    def _vaults_factory(self) -> Callable[[], Vaults] | None:
        """Return one set of vaults for a server's lifetime; keys without a folder would be lost with the process."""
        if self.identity is None:
            return None
        if self.state is None:
            raise StudyError("the site file sets identity but not state; set state to a folder for the keys")
        return cache(partial(Vaults, read_private_key(self.identity), self.roster, self.state))


def read_site_file(path: str | Path) -> SiteFile:
    """Read a site from its file; relative paths in it start at the file's folder."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        top = check_keys(tomllib.loads(text), SITE_FILE_KEYS, str(path))
    except FileNotFoundError:
        raise StudyError(f"there is no site file at {path}; check the path") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} is not valid TOML ({error}); correct it") from None
    for name in ("name", "source", "policy"):
        if name not in top:
            raise StudyError(f"{path} lacks {name}; a site file needs `name`, `source` and [policy]")
    if ("approval" in top) != ("steward" in top):
        raise StudyError(f"{path} sets only one of `approval` and `steward`; a signed approval needs both")
    if top["policy"].get("epsilon") and "state" not in top:
        raise StudyError(
            f"{path} sets a privacy budget but no `state`; set `state` to a folder, in which the site stores "
            "how much it has spent"
        )
    folder = path.parent
    places = {key: folder / Path(top[key]).expanduser() for key in ("state", "identity", "approval") if key in top}
    stewards = [top["steward"]] if isinstance(top.get("steward"), str) else top.get("steward", [])
    noise = check_keys(top.get("noise", {}), ROW_NOISE_KEYS, f"[noise] of {path}")
    if noise and ("epsilon" not in noise or "state" not in top):
        raise StudyError(
            f"{path} has [noise], which needs `epsilon`, and `state` for the folder that stores noised rows; set both"
        )
    site = SiteFile(
        top["name"],
        _resolve_source(top["source"], folder),
        policy_from_table(top["policy"], f"[policy] of {path}"),
        id=top.get("id"),
        noise=LocalNoise(**noise, folder=places["state"] / "noise") if noise else None,
        coordinator=parse_key(top["coordinator"], f"coordinator in {path}") if "coordinator" in top else None,
        roster=parse_roster(top.get("roster", {}), path),
        stewards=tuple(folder / Path(text).expanduser() for text in stewards),
        **places,
    )
    _check_identity(site)
    _check_signatures(site, path)
    return site


def _check_signatures(site: SiteFile, path: Path) -> None:
    """Refuse a file that requires more signatures than its stewards can give."""
    needed, stewards = site.policy.signatures, len(site.stewards)
    if needed > 1 and needed > stewards:
        raise StudyError(
            f"{path} requires {needed} signatures but names {stewards} {'steward' if stewards == 1 else 'stewards'}; "
            "list the public key of each in `steward`, and set `approval`"
        )
    if stewards > 1 and len(site.steward_keys()) < stewards:
        raise StudyError(f"{path} names the same key for two stewards; each steward needs a key of their own")


def _check_identity(site: SiteFile) -> None:
    """Refuse an identity that differs from the one in the roster: other sites would refuse its signatures.

    Somebody who only reads a study does not need the key.
    """
    if site.identity is None or site.name not in site.roster:
        return
    refuse_public_half(site.identity)
    if not os.access(site.identity, os.R_OK):
        return
    if Identity(parse_key(_read_key_text(site.identity), str(site.identity))).public != site.roster[site.name]:
        raise StudyError(
            f"identity is not the key that [roster] lists for {site.name}; copy the content of "
            f"{site.identity}.pub into the [roster] of every site, or set identity to the key whose public half "
            "is listed"
        )


def policy_from_table(table: Mapping[str, Any], place: str) -> Policy:
    """Return a profile, or no profile, with single rules changed."""
    check_keys(table, POLICY_KEYS, place)
    base = PROFILES[table["profile"]] if "profile" in table else Policy("own")
    rules: dict[str, Any] = {
        name: frozenset(v) if isinstance(v, list) else v for name, v in table.items() if name != "profile"
    }
    return replace(base, name=f"{base.name}, changed" if rules and "profile" in table else base.name, **rules)


def make_key(path: Path) -> Path:
    """Create a signing key: the private half at a path that only its owner can read, the public half next to it."""
    if path.exists():
        raise StudyError(f"{path} already exists, and a key is never overwritten; choose another path")
    identity = Identity.new()
    write_file(path, identity.private.hex() + "\n")
    public = path.with_name(f"{path.name}.pub")
    write_file(public, identity.public.hex() + "\n", mode=0o666)
    return public


def read_private_key(path: Path) -> Identity:
    refuse_public_half(path)
    text = _read_key_text(path)
    check_key_permissions(path)
    return Identity(parse_key(text, str(path)))


def refuse_public_half(path: Path) -> None:
    """Refuse a public key by its file name, since both halves have the same format."""
    if path.suffix == ".pub":
        raise StudyError(f"{path} is a public key, which cannot sign; use {path.with_suffix('')}")


def check_key_permissions(path: Path) -> None:
    """Refuse a key that others on this machine can read, because they could sign with it.

    A key of another owner may be readable by a group, as secrets that a service receives are.
    """
    about = path.stat()
    if hasattr(os, "getuid") and about.st_mode & (0o077 if about.st_uid == os.getuid() else 0o007):
        raise StudyError(
            f"others can read the private key at {path}; restrict it to its owner with: chmod 600 {path} (a USB "
            "stick with FAT has no file owners, so chmod has no effect there: keep keys on this machine's disk)"
        )


def read_public_key(path: Path) -> bytes:
    return parse_key(_read_key_text(path), str(path))


def _read_key_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise StudyError(f"there is no key at {path}; create one with fedclust site key") from None


def parse_key(text: Any, place: str) -> bytes:
    """Return a public or private key from its 64 digits; `place` says where they are."""
    try:
        key = bytes.fromhex(text)
    except (ValueError, TypeError):
        key = b""
    if len(key) != 32:
        raise StudyError(f"{place} is not a key of 64 hexadecimal digits; create one with fedclust site key")
    return key


def parse_roster(table: Mapping[str, Any], path: Path) -> dict[str, bytes]:
    """Return public keys by site; two sites with one key could be one site that answers twice."""
    sites: dict[bytes, str] = {}
    for name, text in table.items():
        key = parse_key(text, f"[roster] of {path}, {name},")
        if key in sites:
            raise StudyError(
                f"[roster] of {path} lists the same key for '{sites[key]}' and '{name}'; each site needs its own key"
            )
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
