"""`fedclust enrol`: creates one start-up kit (a folder) for the coordinator and one for each site."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedclust.core.errors import StudyError

SITE_COMMANDS = {  # what a site does with its kit, by engine
    "nvflare": "serve KIT",
    "files": "answer INBOX OUTBOX --site KIT/site.toml --study KIT/study.toml",
}
KIT_ENGINES = tuple(SITE_COMMANDS)


def add_enrol_verb(verbs: Any) -> None:
    enrol = verbs.add_parser("enrol", help="create the start-up kits of a study's sites", description=act_enrol.__doc__)
    enrol.add_argument(
        "study", type=Path, metavar="STUDY", help="a study.toml without data sources; each site sets its own"
    )
    enrol.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for the kits")
    enrol.add_argument(
        "--address",
        default="localhost:8002",
        metavar="HOST:PORT",
        help="the address at which sites reach the coordinator",
    )
    enrol.add_argument(
        "--engine",
        default=KIT_ENGINES[0],
        metavar="NAME",
        help="nvflare (default), or files, which needs no certificates",
    )
    enrol.add_argument(
        "--policy", default="standard", metavar="NAME", help="the initial policy in the site files (default: standard)"
    )
    enrol.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="a folder with the public keys (SITE.pub) of sites that made their own keys",
    )
    enrol.add_argument("--days", type=int, default=360, metavar="N", help="how long the certificates are valid")
    enrol.set_defaults(act=act_enrol)


def act_enrol(chosen: argparse.Namespace) -> int:
    """Create a start-up kit for the coordinator and for each site of a study: keys, certificates, site files.

    A kit contains private keys. Give it only to its owner, as you would a password.
    """
    from fedclust.app.enrol import COORDINATOR_KIT, Enrolment, enrol
    from fedclust.app.study import read_study
    from fedclust.app.study.study_keys import suggest_key
    from fedclust.site.policy import PROFILES

    host, colon, port = chosen.address.rpartition(":")
    if not colon or not port.isdecimal():
        raise StudyError(f"--address is '{chosen.address}'; give HOST:PORT, as in coordinator.example.org:8002")
    for name, value, known in (("--engine", chosen.engine, KIT_ENGINES), ("--policy", chosen.policy, tuple(PROFILES))):
        if value not in known:
            choices = "choose from " + ", ".join(known)
            raise StudyError(f"{name} is '{value}'; {suggest_key(value, known) or choices}")
    study = read_study(chosen.study, served=True)
    what = Enrolment(study, chosen.engine, host, int(port), chosen.days, chosen.policy, chosen.keys)
    made = enrol(what, chosen.out)
    print(
        f"{chosen.out / COORDINATOR_KIT}  for the coordinator:  fedclust coordinate {chosen.study} "
        f"{_coordinate_options(chosen)}"
    )
    for site in what.site_names:
        print(f"{chosen.out / site}  for site '{site}':  fedclust site {SITE_COMMANDS[chosen.engine]} --data FILE")
    if made:
        print(
            f"The private keys of {', '.join(made)} were made on this machine. Anyone with a copy can act as these "
            "sites. A site that makes its own key (fedclust site key) and sends only its .pub file (--keys) does not "
            "have to trust this machine."
        )
    return 0


def _coordinate_options(chosen: argparse.Namespace) -> str:
    return f"--engine {chosen.engine} --own {chosen.out / 'coordinator' / 'coordinator.toml'}"
