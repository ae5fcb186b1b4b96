"""Who takes part in a study, made into one folder for each: keys, the others' public keys, a site file, certificates.

A kit is for one study. Whoever makes the kits could keep copies of the private keys in them; sites that do not want to
trust anyone with that make their own key and tell its public half (`keys`), and put the private half into the kit.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedclust.app.serve import schema_at
from fedclust.app.study import Study
from fedclust.app.study.toml_text import tables
from fedclust.core.errors import StudyError
from fedclust.site.approval import digest_of
from fedclust.site.site_file import SITES_OWN, SiteFile, new_key, private_key, public_key

COORDINATOR = "coordinator"
HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
DAYS = 365


@dataclass(frozen=True)
class Enrolment:
    """What kits are made of. `host` and `port` are where sites reach the coordinator, `days` how long they may."""

    study: Study
    engine: str
    host: str = "localhost"
    port: int = 8002
    days: int = DAYS
    policy: str = "standard"
    keys: Path | None = None  # a folder with NAME.pub of sites that made their own key

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.study.sites)

    def check(self) -> None:
        """Refuse what cannot be served, before any key is made."""
        for name, table in tables(self.study.text, Path("the study"))["sites"].items():
            for key in SITES_OWN:
                if key in table:
                    raise StudyError(
                        f"[sites.{name}] gives {key}; a site that serves takes that from its own file only"
                    )
        for site in self.sites:
            schema_at(self.study, site)
            if site == COORDINATOR:
                raise StudyError(f"a site cannot be called '{COORDINATOR}'; that is the name of the other kit")
        self.study.aggregation.check(self.sites)
        if not HOST.fullmatch(self.host) or not 0 < self.port < 65536:
            raise StudyError(f"'{self.host}:{self.port}' is no address; give HOST:PORT, as sites are to call it")
        if not 0 < self.days <= 3650:
            raise StudyError("--days must be a number from 1 to 3650")


def enrol(what: Enrolment, out: Path) -> list[str]:
    """Make the kits in a folder that was not there; returns the names of sites whose private key was made here."""
    what.check()
    if out.exists() and any(out.iterdir()):
        raise StudyError(f"{out} is not empty; enrol into another folder, or remove it if its kits are no longer used")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        made = _keys(what, out)
        if what.engine == "nvflare":
            _certified(what, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return made


def _keys(what: Enrolment, out: Path) -> list[str]:
    made, roster = [], {}
    for name in (COORDINATOR, *what.sites):
        (out / name).mkdir(mode=0o700)
        own = None if what.keys is None else what.keys / f"{name}.pub"
        if own is not None and own.is_file():
            roster[name] = public_key(own)
        else:
            roster[name] = public_key(new_key(out / name / "identity"))
            made.append(name)
    coordinator = roster.pop(COORDINATOR)
    _write(out / COORDINATOR / "coordinator.toml", coordinator_file(roster, what.engine))
    _write(out / COORDINATOR / "study.toml", what.study.text)
    for site in what.sites:
        _write(out / site / "site.toml", site_file(site, roster, coordinator, what))
        _write(out / site / "study.toml", what.study.text)
    return [name for name in made if name != COORDINATOR]


def _certified(what: Enrolment, out: Path) -> None:
    try:
        from fedclust.engines.nvflare import startup_kit  # noqa: PLC0415 an extra
    except ModuleNotFoundError:
        raise StudyError("kits for NVIDIA FLARE need it; install it with: pip install 'fedclust[nvflare]'") from None
    names = startup_kit.site_names(what.sites)

    def kit(role: str, name: str) -> startup_kit.Kit:
        digest = digest_of(what.study.text)
        return startup_kit.Kit(role, name, what.study.name, digest, what.host, what.port, names)

    kits = {COORDINATOR: kit(COORDINATOR, COORDINATOR), **{site: kit("site", site) for site in what.sites}}
    startup_kit.provisioned(out, kits, days=what.days)
    for folder, own in kits.items():
        own.write(out / folder)


def coordinator_file(roster: Mapping[str, bytes], engine: str) -> str:
    """What `fedclust coordinate --own` reads."""
    kit = '\n[engine]\nkit = "."\n' if engine == "nvflare" else ""
    return f'identity = "identity"\n{kit}\n[roster]\n{_told(roster)}'


def site_file(site: str, roster: Mapping[str, bytes], coordinator: bytes, what: Enrolment) -> str:
    """A site's own file, to begin with: its people may make the rules stricter, and name their steward."""
    least = f'aggregation = "{what.study.aggregation.mode}"\n' if what.study.aggregation.mode != "plain" else ""
    return (
        f"# The rules of this site, for the study '{what.study.name}'. Only people at this site change this file.\n"
        f"name = {_quoted(site)}\n"
        'source = "rows.csv"  # or another, by --data FILE\n'
        'state = "state"  # ledger, memory and keys of runs; keep it\n'
        'identity = "identity"\n'
        f'coordinator = "{coordinator.hex()}"\n'
        f'\n[policy]\nprofile = "{what.policy}"\n{least}'
        f"\n[roster]\n{_told(roster)}"
    )


def _told(roster: Mapping[str, bytes]) -> str:
    return "".join(f'{_quoted(name)} = "{key.hex()}"\n' for name, key in roster.items())


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def check_key(site: SiteFile) -> None:
    """Refuse a kit that lacks the site's key, or whose key is not the one the others were told of."""
    if site.identity is None or not site.identity.is_file():
        raise StudyError(f"the kit holds no private key; put the one that site '{site.name}' made at {site.identity}")
    if private_key(site.identity).public != site.roster.get(site.name):
        raise StudyError(f"the key at {site.identity} is not the one told for site '{site.name}'; put that one there")
