"""`fedclust site serve`: answers one study's questions on a site's rows, over outgoing connections only."""

from __future__ import annotations

import argparse
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.core.counted_nouns import count_noun
from fedclust.core.errors import StudyError

if TYPE_CHECKING:
    from fedclust.site.site_file import SiteFile


def add_serve_verb(acts: Any) -> None:
    serve = acts.add_parser("serve", help="take part in a study over NVIDIA FLARE", description=act_serve.__doc__)
    serve.add_argument(
        "kit", type=Path, metavar="KIT", help="the start-up kit that 'fedclust enrol' made for this site"
    )
    serve.add_argument(
        "--data", type=Path, metavar="FILE", help="this site's data file (default: the source in its site.toml)"
    )
    serve.add_argument("--quiet", action="store_true", help="print errors only")
    serve.set_defaults(act=act_serve)


def act_serve(chosen: argparse.Namespace) -> int:
    """Answer the questions of the kit's study on this site's rows, under the site's own rules, until stopped.

    The site connects to the coordinator only. No port is opened at the site.
    """
    try:
        from fedclust.engines.nvflare.nvflare_serve import SiteClient
        from fedclust.engines.nvflare.startup_kit import Kit
    except ModuleNotFoundError:
        raise StudyError("serving needs NVIDIA FLARE; install it with: pip install 'fedclust[nvflare]'") from None
    from fedclust.app.enrol import check_site_key
    from fedclust.app.serve import open_session
    from fedclust.app.study import read_study
    from fedclust.site.site_file import read_site_file

    site = read_site_file(chosen.kit / "site.toml")
    check_site_key(site)
    Kit.read(chosen.kit, "site").check_study(read_study(chosen.kit / "study.toml", served=True).text)
    if chosen.data is not None:
        site = replace(site, source=chosen.data)
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    with open_session(site, study=chosen.kit / "study.toml") as session:
        rows = _count_rows(site, chosen.kit / "study.toml")
        served = SiteClient(chosen.kit, session.answer_message)
        if not chosen.quiet:
            kit = served.kit
            print(
                f"site '{site.name}', {count_noun(rows, 'row')}, waits for the coordinator at {kit.host}:{kit.port}",
                flush=True,
            )
        try:
            served.run_until(done)
        finally:
            served.close()
    if not chosen.quiet:
        print("stopped")
    return 0


def _count_rows(site: SiteFile, study: Path) -> int:
    """Count the rows that would take part; bad data is reported here, at the site."""
    from fedclust.app.serve import open_study_server
    from fedclust.app.study import read_study

    found = read_study(study, served=True)
    return open_study_server(site, found.text).site_data.survey_for(found.missing).rows
