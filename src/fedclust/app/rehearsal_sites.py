"""The site files of a rehearsal: the rules and rows of the real ones, copies of their state, and other keys."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedclust.app.study import Study, StudySite
from fedclust.core.atomic_files import write_file
from fedclust.core.errors import StudyError
from fedclust.core.types import PartyId
from fedclust.privacy.keys import Identity
from fedclust.site.approval import Approval
from fedclust.site.policy import Policy
from fedclust.site.site_file import SiteFile, policy_from_table, read_site_file

# What a site's rules look at in its state; keys and the copies of greetings are not needed.
STATE_FILES = ("ledger.jsonl", "budget.jsonl", "state")
STATE_FOLDERS = ("noisy", "orders", "states")


@dataclass(frozen=True)
class RehearsalFile(SiteFile):
    """A site file for one rehearsal. `real` is the site's own file, which alone can say what was approved."""

    real: SiteFile | None = None
    rules_from: str = ""
    checks_approval: bool = True

    def load_approval(self) -> Approval | None:
        """Return the approval that the real site requires, for its real roster."""
        return self.real.load_approval() if self.real is not None and self.checks_approval else None


def read_site_files(places: list[str], study: Study) -> dict[PartyId, SiteFile]:
    """Return site files by site, each given as NAME=FILE, as a file, or as a folder of such files or of kits."""
    found: dict[PartyId, SiteFile] = {}
    names = [site.name for site in study.sites]
    for place in places:
        said, equals, path = place.partition("=")
        for file in _site_file_paths(Path(path if equals else place)):
            site = read_site_file(file)
            if equals and site.name != said:
                raise StudyError(f"--site gives {file} to '{said}', but this file is of site '{site.name}'")
            if site.name not in names:
                raise StudyError(f"{file} is of site '{site.name}', and the study has only {', '.join(names)}")
            if site.name in found:
                raise StudyError(f"--site names two files of site '{site.name}'; give one")
            found[site.name] = site
    return found


def _site_file_paths(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / "site.toml").is_file():
        return [path / "site.toml"]
    if found := sorted(path.glob("*/site.toml")) or sorted(path.glob("*.toml")):
        return found
    raise StudyError(f"{path} holds no site files; name the site.toml of a site, or a folder of them")


def make_rehearsal_files(
    study: Study, site_files: Mapping[PartyId, SiteFile], folder: Path, profile: str, *, checks_approvals: bool
) -> dict[PartyId, RehearsalFile]:
    """Return a site file for each site, with state and keys below `folder`; nothing is written elsewhere."""
    identities = {site.name: Identity.new() for site in study.sites}
    found: dict[PartyId, RehearsalFile] = {}
    for site in study.sites:
        real, home = site_files.get(site.name), folder / "sites" / site.name
        home.mkdir(mode=0o700, parents=True)
        write_file(home / "identity", identities[site.name].private.hex() + "\n", durable=False)
        if real is not None and real.state is not None:
            _copy_state(real.state, home / "state")
        if real is None:
            found[site.name] = _enrolled_file(study, site, profile, identities, home)
        else:
            roster = _rehearsal_roster(real, site_files, identities)
            found[site.name] = _copied_file(site, real, home, roster, checks_approval=checks_approvals)
    return found


def _copied_file(
    site: StudySite, real: SiteFile, home: Path, roster: Mapping[str, bytes], *, checks_approval: bool
) -> RehearsalFile:
    """Return a copy of a site's own file; rows that the study names stand in for those of the file."""
    shared = {name: vars(real)[name] for name in ("name", "policy", "id", "stewards", "approval", "coordinator")}
    return RehearsalFile(
        **shared,
        source=site.source or real.source,
        state=home / "state",
        identity=None if real.identity is None else home / "identity",
        noise=None if real.noise is None else real.noise.rehearsal_copy(),
        roster=roster,
        real=real,
        rules_from="its site file",
        checks_approval=checks_approval,
    )


def _enrolled_file(
    study: Study, site: StudySite, profile: str, identities: Mapping[str, Identity], home: Path
) -> RehearsalFile:
    """Return the file that a site without one would get."""
    if not site.source:
        raise StudyError(
            f"site '{site.name}' has no rows to rehearse with; add source to [sites.{site.name}], or give its site "
            "file with --site"
        )
    own: Any = tomllib.loads(study.text)["sites"][site.name]
    says = "policy" in own
    return RehearsalFile(
        name=site.name,
        source=site.source,
        policy=site.rules if says else enrolled_policy(study, profile),
        state=home / "state",
        identity=home / "identity",
        roster={name: identity.public for name, identity in identities.items()},
        rules_from="the study" if says else "as enrol writes it",
    )


def enrolled_policy(study: Study, profile: str) -> Policy:
    """Return the policy that `fedclust enrol` writes into the kits of a study."""
    mode = study.aggregation.mode
    return policy_from_table(
        {"profile": profile} | ({} if mode == "plain" else {"aggregation": mode}), "the policy of enrol"
    )


def _rehearsal_roster(
    real: SiteFile, site_files: Mapping[PartyId, SiteFile], identities: Mapping[str, Identity]
) -> dict[str, bytes]:
    """Return a site's roster with the rehearsal's keys; a real key that differs from the site's own stays wrong."""
    roster = {}
    for name, key in real.roster.items():
        own = site_files[name].roster.get(name) if name in site_files else None
        known = name in identities and own in (None, key)
        roster[name] = identities[name].public if known else key
    return roster


def _copy_state(real: Path, copy: Path) -> None:
    """Copy what the rules look at; a folder that another process writes to at this moment is read as it is."""
    copy.mkdir(mode=0o700)
    for name in STATE_FILES:
        if (real / name).is_file():
            shutil.copyfile(real / name, copy / name)
    for name in STATE_FOLDERS:
        if (real / name).is_dir():
            shutil.copytree(real / name, copy / name)


def without_column_rule(file: RehearsalFile) -> RehearsalFile:
    """Return the file without its list of columns, to find out what else the site would refuse."""
    return replace(file, policy=replace(file.policy, columns=None), checks_approval=False)


def without_approval(file: RehearsalFile) -> RehearsalFile:
    """Return the file without its approval, to find out what else the site would refuse."""
    return replace(file, checks_approval=False)
