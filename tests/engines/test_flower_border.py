"""What a SuperLink can learn of a site, whom Flower's processes call, and which apps a SuperNode takes."""

import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra; make test-engines installs it in an environment of its own")

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from flower_federation import Flower3
from searching import grepped

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

MARKER = 7431.523478912345  # a value that nothing but the planted row holds
# An app whose code fails at one site, and quotes its rows while doing so.
FAILING = """
from dataclasses import replace
from fedclust.core.effects import HANDLERS
from fedclust.app.serve import import_questions
import_questions()
plain = HANDLERS["standardisation.column_sums"]
def answer(site, ask):
    if site.party == "south":
        raise ValueError(str([block.tolist() for block in site.blocks(ask.view)]))
    return plain.answer(site, ask)
HANDLERS["standardisation.column_sums"] = replace(plain, answer=answer)
"""


def test_nothing_of_a_row_reaches_the_superlink_even_when_a_site_fails_and_quotes_it(tmp_path):
    flower = Flower3.made(tmp_path, mode="plain")
    path = tmp_path / "kits" / "south" / "rows.csv"
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    rows[3, 1] = MARKER
    np.savetxt(path, rows, delimiter=",", header="age,bp", comments="", fmt="%.17g")
    with (tmp_path / "app" / "study_app" / "client.py").open("a") as app:
        app.write(FAILING)
    try:
        flower.up().start()
        flower.until(lambda: flower.holds("south: an error occurred at the site; see trouble.log there"), ends=True)
    finally:
        flower.stop()
    assert flower.status["state"] == "failed"
    needles = [b"7431.52", struct.pack("<d", MARKER), struct.pack(">d", MARKER)]
    link = tmp_path / "homes" / "link"
    assert grepped(tmp_path / "kits" / "south" / "state", needles)  # the site's own log has it: the marker works
    assert flower.holds("bounds.count_rows")  # what the SuperLink carried is there in clear, to be looked through
    assert grepped(link, needles) == []
    assert grepped(tmp_path / "run", needles) == []
    assert grepped(tmp_path / "kits" / "coordinator", needles) == []
    assert "7431" not in flower.said()


INSIDE = """
import contextlib, socket, sys
from pathlib import Path
sys.path[:0] = {path!r}
from flower_federation import Flower3
def unrouted():
    head, counts = [l.split() for l in Path("/proc/net/snmp").read_text().splitlines() if l.startswith("Ip:")]
    six = [l.split() for l in Path("/proc/net/snmp6").read_text().splitlines() if "Ip6OutNoRoutes" in l]
    return int(dict(zip(head, counts))["OutNoRoutes"]) + sum(int(line[1]) for line in six)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
    probe.connect(("10.255.255.255", 1))  # that a way outside was looked for would be seen
assert unrouted() == 1, unrouted()
flower = Flower3(Path({folder!r}), port={port}, telemetry={telemetry!r})
try:
    flower.up()
    if flower.telemetry == "0":
        flower.start()
        flower.until(lambda: flower.status["steps"] >= 3)
finally:
    flower.stop()
print("steps", flower.status["steps"], "unrouted", unrouted() - 1)
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs network namespaces")
@pytest.mark.parametrize("telemetry", ["0", "1"])
def test_with_telemetry_off_nothing_but_loopback_is_called(tmp_path, telemetry):
    """With telemetry on, something is: so what the count says of it being off, it says with reason."""
    own = Flower3.made(tmp_path)
    path = [sys.path[0], str(Path(__file__).parent)]
    script = tmp_path / "inside.py"
    script.write_text(
        textwrap.dedent(INSIDE).format(path=path, folder=str(tmp_path), port=own.port, telemetry=telemetry)
    )
    inside = f"ip link set lo up && exec {sys.executable} {script}"
    done = subprocess.run(["unshare", "-n", "sh", "-c", inside], capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine allows no network namespaces")
    found = done.stdout.split()
    assert found[:1] == ["steps"], done.stdout + done.stderr
    assert (int(found[1]) >= 3) == (telemetry == "0")
    assert (int(found[3]) == 0) == (telemetry == "0"), done.stdout


def test_a_supernode_that_takes_signed_apps_only_takes_none_that_is_sent_from_a_folder(tmp_path):
    """When this fails, Flower can sign apps that do not come from its own hub: docs/flower.md has to say so."""
    flower = Flower3.made(tmp_path)
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    (tmp_path / "trusted.yaml").write_text(f"fpk_one: '{key.public_bytes(*form).decode()}'\n")
    try:
        flower.superlink()
        flower.join("north", "--trusted-entities", tmp_path / "trusted.yaml")
        flower.start()
        flower.until(lambda: "could not be verified" in flower.said("north"), ends=True)
    finally:
        flower.stop()
    assert not list((tmp_path / "kits" / "north").glob("state/*"))
