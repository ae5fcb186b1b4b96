"""This benchmark measures the cost of verified rounds: bytes and CPU time of an iteration next to secure mode.

Every message travels as bytes between a coordinator and sites that have their own sessions and folders, all in this
process. An iteration's cost is the difference between a run of many iterations and a run of few, for each mode.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import timing
from fedclust.app.fit_study import fit_study
from fedclust.app.run_folder import EngineChoice, Run
from fedclust.app.serve import open_session
from fedclust.app.served_study import open_served_study, send_outcomes
from fedclust.app.study import read_study
from fedclust.engines.networked_engine import NetworkedEngine
from fedclust.federation.run_record import RunRecord
from fedclust.privacy.keys import Identity
from fedclust.site.session import SiteSession
from fedclust.site.site_file import read_site_file

LIMIT = 3.0  # verified / secure, bytes and CPU time, 20 sites
LIMITED_SITES = 20
FEW_ITERATIONS, MANY_ITERATIONS = 2, {10: 42, 100: 6}  # by the number of clusters
ROWS = 40  # of each site: few, so that the arithmetic over rows hides nothing
CASES = [(sites, k, width) for k, width in ((10, 16), (100, 784)) for sites in (3, 20, 50)]


def main(*, json: bool) -> int:
    """Measure and print."""
    found = [_compare(*case) for case in CASES]
    return timing.show({"machine": timing.machine(), "verified": found}, found, as_json=json)


def _compare(sites: int, k: int, width: int) -> dict[str, Any]:
    secure, verified = (_iteration_cost(sites, k, width, verified=verified) for verified in (False, True))
    ratios = {f"{name} ratio": verified[name] / secure[name] for name in secure}
    limited = ratios if sites == LIMITED_SITES else {}
    return {
        "bench": f"{sites} sites, {k}x{width}",
        **{f"secure {name}": value for name, value in secure.items()},
        **{f"verified {name}": value for name, value in verified.items()},
        **ratios,
        "missed": [f"{name}: {ratio:.3g}, at most {LIMIT}" for name, ratio in limited.items() if ratio > LIMIT],
    }


def _iteration_cost(sites: int, k: int, width: int, *, verified: bool) -> dict[str, float]:
    """The bytes to and from each site, and the CPU time of a site and of the coordinator, for one iteration."""
    most = MANY_ITERATIONS[k]
    few, many = (_run(sites, k, width, count, verified=verified) for count in (FEW_ITERATIONS, most))
    each = (most - FEW_ITERATIONS) * sites
    return {
        "bytes": (many.sent + many.received - few.sent - few.received) / each,
        "site CPU ms": 1e3 * (many.site_seconds - few.site_seconds) / each,
        "coordinator CPU ms": 1e3 * (many.coordinator_seconds - few.coordinator_seconds) / (most - FEW_ITERATIONS),
    }


@dataclass
class _MeasuredLink:
    """A link to sessions of this process that counts bytes, and the CPU time of the sites."""

    sessions: dict[str, SiteSession]
    sent: int = 0
    received: int = 0
    site_seconds: float = 0.0
    coordinator_seconds: float = 0.0

    def carry(self, requests: Mapping[str, bytes], *, timeout: float) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002
        for party, data in requests.items():
            began = time.process_time()
            reply = self.sessions[party].answer_message(data)
            self.site_seconds += time.process_time() - began
            self.sent += len(data)
            self.received += len(reply)
            yield party, reply

    def close(self, *, done: bool) -> None:
        pass


def _run(sites: int, k: int, width: int, rounds: int, *, verified: bool) -> _MeasuredLink:
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="fedclust-"))
        folder, names = Path(place), [f"s{i:02}" for i in range(sites)]
        study = _write_study(folder, names, k, width, rounds, verified=verified)
        files = {name: read_site_file(folder / name / "site.toml") for name in names}
        sessions = {name: stack.enter_context(open_session(site, study=study)) for name, site in files.items()}
        link = _MeasuredLink(sessions)
        parsed = read_study(study, served=True)
        run = Run.create(folder / "run", parsed.text, origin=Path(), engine_choice=EngineChoice("files"))
        engine = NetworkedEngine(link, tuple(names), run=run.name, study=parsed.text)
        ready = open_served_study(parsed, engine, RunRecord(run.folder, run.name, durable=False))
        send_outcomes(ready, engine, run.folder)
        began = time.process_time()
        fit_study(ready)
        link.coordinator_seconds = time.process_time() - began - link.site_seconds
        ready.fed.close()
        engine.close()
        return link


def _write_study(folder: Path, names: list[str], k: int, width: int, rounds: int, *, verified: bool) -> Path:
    rng, keys = np.random.default_rng(0), {name: Identity.new() for name in names}
    columns = [f"x{i}" for i in range(width)]
    roster = "".join(f'{name} = "{key.public.hex()}"\n' for name, key in keys.items())
    for name, key in keys.items():
        home = folder / name
        home.mkdir()
        (home / "own.key").touch(mode=0o600)
        (home / "own.key").write_text(key.private.hex() + "\n")
        rows = rng.random((ROWS, width))
        np.savetxt(home / "rows.csv", rows, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")
        (home / "site.toml").write_text(
            f'name = "{name}"\nsource = "rows.csv"\nstate = "state"\nidentity = "own.key"\n'
            f'[policy]\nprofile = "none"\n[roster]\n{roster}'
        )
    listed = ", ".join(f'"{name}"' for name in columns)
    (folder / "study.toml").write_text(
        f'name = "cost"\ncolumns = [{listed}]\nbounds = [0, 1]\n'
        f'[cluster]\nmethod = "k-means"\nk = {k}\ninit = "box"\nmax_iter = {rounds}\ntol = "none"\n'
        f'[privacy]\naggregation = "secure"\nopening = "exact"\nverified = {str(verified).lower()}\n'
        + "".join(f"[sites.{name}]\n" for name in names)
    )
    return folder / "study.toml"
