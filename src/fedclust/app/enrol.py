"""Creates a start-up kit for each participant of a study: its key, the others' public keys, a file, certificates.

A kit is for one study. The person who makes the kits could keep copies of the private keys in them. A site that does
not want this makes its own key, shares only the public half (`keys`), and puts the private half into its kit.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedclust.app.served_columns import site_schema
from fedclust.app.served_study import refuse_site_only_keys
from fedclust.app.study import Study
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import StudyError
from fedclust.site.approval import digest_study
from fedclust.site.site_file import SiteFile, make_key, read_private_key, read_public_key

COORDINATOR_KIT = "coordinator"
HOST_PATTERN = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
CERTIFICATE_DAYS = 365


@dataclass(frozen=True)
class Enrolment:
    """What kits are made of. Sites reach the coordinator at `host` and `port`; certificates are valid for `days`."""

    study: Study
    engine: str
    host: str = "localhost"
    port: int = 8002
    days: int = CERTIFICATE_DAYS
    policy: str = "standard"
    keys: Path | None = None  # a folder with NAME.pub of sites that made their own key

    @property
    def site_names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.study.sites)

    def check_study(self) -> None:
        """Refuse a study that remote sites cannot serve, before any key is made."""
        refuse_site_only_keys(self.study)
        for site in self.site_names:
            site_schema(self.study, site)
            if site == COORDINATOR_KIT:
                raise StudyError(
                    f"a site cannot be called '{COORDINATOR_KIT}', because the coordinator's kit has that name; "
                    "rename the site"
                )
        self.study.aggregation.check_parties(self.site_names)
        if not HOST_PATTERN.fullmatch(self.host) or not 0 < self.port < 65536:
            raise StudyError(
                f"'{self.host}:{self.port}' is not a valid address; give HOST:PORT, the address that sites connect to"
            )
        if not 0 < self.days <= 360:  # the longest validity in FLARE's provisioning
            raise StudyError("--days must be a number from 1 to 360")


def enrol(enrolment: Enrolment, out: Path) -> list[str]:
    """Create the kits in a new folder; return the names of sites whose private key was made here."""
    enrolment.check_study()
    if out.exists() and any(out.iterdir()):
        raise StudyError(f"{out} is not empty; choose another folder, or remove it if its kits are no longer used")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        made = _write_kits(enrolment, out)
        if enrolment.engine == "nvflare":
            _add_certificates(enrolment, out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    return made


def _write_kits(enrolment: Enrolment, out: Path) -> list[str]:
    made, roster = [], {}
    for name in (COORDINATOR_KIT, *enrolment.site_names):
        (out / name).mkdir(mode=0o700)
        own = None if enrolment.keys is None else enrolment.keys / f"{name}.pub"
        if own is not None and own.is_file():
            roster[name] = read_public_key(own)
        else:
            roster[name] = read_public_key(make_key(out / name / "identity"))
            made.append(name)
    coordinator = roster.pop(COORDINATOR_KIT)
    write_file(out / COORDINATOR_KIT / "coordinator.toml", coordinator_file_text(roster, enrolment.engine))
    write_file(out / COORDINATOR_KIT / "study.toml", enrolment.study.text)
    for site in enrolment.site_names:
        write_file(out / site / "site.toml", site_file_text(site, roster, coordinator, enrolment))
        write_file(out / site / "study.toml", enrolment.study.text)
    return [name for name in made if name != COORDINATOR_KIT]


def _add_certificates(enrolment: Enrolment, out: Path) -> None:
    try:
        from fedclust.engines.nvflare import startup_kit  # noqa: PLC0415 an extra
    except ModuleNotFoundError:
        raise StudyError(
            "kits for NVIDIA FLARE need the package; install it with: pip install 'fedclust[nvflare]'"
        ) from None
    names = startup_kit.site_names(enrolment.site_names)

    def make_kit(role: str, name: str) -> startup_kit.Kit:
        digest = digest_study(enrolment.study.text)
        return startup_kit.Kit(role, name, enrolment.study.name, digest, enrolment.host, enrolment.port, names)

    kits = {
        COORDINATOR_KIT: make_kit(COORDINATOR_KIT, COORDINATOR_KIT),
        **{site: make_kit("site", site) for site in enrolment.site_names},
    }
    startup_kit.provision_kits(out, kits, days=enrolment.days)
    for folder, own in kits.items():
        own.write(out / folder)


def coordinator_file_text(roster: Mapping[str, bytes], engine: str) -> str:
    """Write the file that `fedclust coordinate --own` reads."""
    kit = '\n[engine]\nkit = "."\n' if engine == "nvflare" else ""
    return f'identity = "identity"\n{kit}\n[roster]\n{_roster_lines(roster)}'


def site_file_text(site: str, roster: Mapping[str, bytes], coordinator: bytes, enrolment: Enrolment) -> str:
    """Write a site's initial file; the site may make the rules stricter and name its data steward."""
    least = (
        f'aggregation = "{enrolment.study.aggregation.mode}"\n' if enrolment.study.aggregation.mode != "plain" else ""
    )
    noise = enrolment.study.noise
    if noise:
        least += f"epsilon = {float(noise['epsilon'])!r}\n"
        least += f"delta = {float(noise['delta'])!r}\n" if "delta" in noise else ""
    return (
        f"# The rules of this site for the study '{enrolment.study.name}'. Only the site's own staff "
        f"should change this file.\n"
        f"name = {_quote_toml(site)}\n"
        'source = "rows.csv"  # or use --data FILE\n'
        'state = "state"  # ledger, memory and keys of runs; do not delete it\n'
        'identity = "identity"\n'
        f'coordinator = "{coordinator.hex()}"\n'
        f'\n[policy]\nprofile = "{enrolment.policy}"\n{least}'
        f"\n[roster]\n{_roster_lines(roster)}"
    )


def _roster_lines(roster: Mapping[str, bytes]) -> str:
    return "".join(f'{_quote_toml(name)} = "{key.hex()}"\n' for name, key in roster.items())


def _quote_toml(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_site_key(site: SiteFile) -> None:
    """Refuse a kit that lacks the site's key, or whose key is not the one that the others know."""
    if site.identity is None or not site.identity.is_file():
        raise StudyError(f"the kit has no private key; copy the private key of site '{site.name}' to {site.identity}")
    if read_private_key(site.identity).public != site.roster.get(site.name):
        raise StudyError(
            f"the key at {site.identity} is not the one registered for site '{site.name}'; replace it with the "
            "registered key"
        )
