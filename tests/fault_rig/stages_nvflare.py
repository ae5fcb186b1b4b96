"""The NVIDIA FLARE setup connects each site through its own port forwarder, which can cut the site off."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import socket
from pathlib import Path

from fault_rig.stages import FAULT_STUDY, SITE_NAMES, write_tables
from fedclust.engines.port_forwarding import PortForwarder

PATIENCE_IN_TIMEOUTS = 15.0  # patience for a missing site, in timeouts; FLARE needs several short timeouts to start


class Nvflare:
    """Three serving sites and a coordinator, set up by `fedclust enrol`."""

    name = "nvflare"
    has_site_processes = True
    short_timeout, max_run_seconds, records_per_life, extra_study_lines = 5.0, 400.0, 1, ""

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        write_tables(folder, self.extra_study_lines)
        (folder / "study.toml").write_text(
            FAULT_STUDY + self.extra_study_lines + "".join(f"[sites.{party}]\n" for party in SITE_NAMES)
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        words = ["enrol", str(folder / "study.toml"), "--out", str(folder / "kits")]
        words += ["--address", f"localhost:{port}", "--policy", "none"]
        with contextlib.redirect_stdout(io.StringIO()):
            if importlib.import_module("fedclust.cli.main").main(words):
                raise RuntimeError("the kits could not be made")
        self._forwarders = {party: PortForwarder(("127.0.0.1", 0), port) for party in SITE_NAMES}
        for party, door in self._forwarders.items():
            path = folder / "kits" / party / "startup" / "fed_client.json"
            config = json.loads(path.read_text())
            config["servers"][0]["service"]["target"] = f"localhost:{door.address[1]}"
            path.write_text(json.dumps(config))

    def begin_words(self, *, timeout: float) -> list[str]:
        own = str(self.folder / "kits" / "coordinator" / "coordinator.toml")
        words = ["coordinate", str(self.folder / "study.toml"), "--engine", "nvflare", "--own", own]
        words += ["--out", str(self.folder / "run"), "--set", f"patience={PATIENCE_IN_TIMEOUTS * timeout}"]
        return [*words, "--timeout", str(timeout), "--quiet"]

    def resume_words(self, *, timeout: float) -> list[str]:
        return ["resume", str(self.folder / "run"), "--timeout", str(timeout), "--quiet"]

    def serve_words(self, party: str) -> list[str]:
        return ["site", "serve", str(self.folder / "kits" / party), "--data", str(self.folder / party / "rows.csv")]

    def cut_link(self, party: str) -> None:
        self._forwarders[party].cut_off()

    def restore_link(self, party: str) -> None:
        self._forwarders[party].reopen()

    def close(self) -> None:
        for door in self._forwarders.values():
            door.close()
