"""Who gets into a federation over NVIDIA FLARE, what its coordinator can learn of a site, and whom it calls."""

import contextlib
import datetime as dt
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from searching import grepped
from served_federation import Federation3, wait_until

from fedclust.cli.main import main
from fedclust.core.errors import StudyError
from fedclust.engines.nvflare.nvflare_link import NvflareLink
from fedclust.engines.nvflare.startup_kit import Kit

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

MARKER = 7431.523478912345  # a value that nothing but the planted row holds
# A site whose code fails, and quotes its rows while doing so.
FAILING = textwrap.dedent("""
    import sys
    from dataclasses import replace
    from fedclust.core.effects import HANDLERS
    from fedclust.app.serve import import_questions
    import_questions()
    name = "row_split.moments"
    def answer(site, ask):
        raise ValueError(str([block.tolist() for block in site.blocks(ask.view)]) + " planted 7431.523478912345")
    HANDLERS[name] = replace(HANDLERS[name], answer=answer)
    from fedclust.cli.main import main
    sys.exit(main(sys.argv[1:]))
""")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A federation whose server is up, with nobody connected."""
    own = Federation3.made(tmp_path_factory.mktemp("border"))
    folder = own.folder / "kits" / "coordinator"
    link = NvflareLink(folder, Kit.read(folder, "coordinator"), own.folder / "work")
    link._connected_sites()
    yield own, link
    link.close(done=True)


def handshake(port, folder, certificate="client.crt", key="client.key"):
    """Whether the server talks to the holder of a certificate: it answers the first frame of HTTP/2, or hangs up."""
    context = ssl.create_default_context(cafile=folder / "startup" / "rootCA.pem")
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(folder / "startup" / certificate, folder / "startup" / key)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))  # no settings
            return bool(line.recv(64))
    except (ssl.SSLError, ConnectionError, TimeoutError):
        return False


def certificate_from(folder, *, issuer, signing, days, name="north"):
    """A certificate and key put into a folder as a client would have them."""
    now = dt.datetime.now(dt.UTC)
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=min(days) - 1))
        .not_valid_after(now + dt.timedelta(days=max(days)))
        .sign(signing or key, hashes.SHA256())
    )
    (folder / "startup" / "client.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "startup" / "client.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return folder


def copied(own, name, to):
    shutil.copytree(own.folder / "kits" / name, own.folder / to)
    return own.folder / to


def test_an_enrolled_site_is_let_in(server):
    own, _ = server
    assert handshake(own.port, own.folder / "kits" / "north")


def test_nobody_without_a_certificate_is_let_in(server):
    own, _ = server
    assert not handshake(own.port, own.folder / "kits" / "north", certificate=None)


def test_a_plain_connection_is_not_answered(server):
    own, _ = server
    with socket.create_connection(("127.0.0.1", own.port), 10) as line:
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        line.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert line.recv(64)[:1] in (b"", b"\x15")  # hung up, or a TLS alert


def test_a_certificate_of_nobody_is_refused(server):
    own, _ = server
    folder = copied(own, "north", "self-signed")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedclust")])  # the name of the study's root
    assert not handshake(own.port, certificate_from(folder, issuer=name, signing=None, days=(0, 30)))


def test_an_expired_certificate_is_refused(tmp_path):
    """The root's key is thrown away at once, so a root that is kept stands in: valid today, its site's is not."""
    own = Federation3(tmp_path)
    text = "".join(f"[sites.{n}]\n" for n in ("north", "south", "west"))
    from served_federation import STUDY

    (tmp_path / "study.toml").write_text(STUDY.format(mode="secure", rounds=2) + text)
    own.enrol("kits")
    root_key = rsa.generate_private_key(65537, 2048)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])  # two roots of one name would be mixed up
    now = dt.datetime.now(dt.UTC)
    root = (
        x509.CertificateBuilder()
        .subject_name(issuer)
        .issuer_name(issuer)
        .public_key(root_key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=30))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    old_root = (tmp_path / "kits" / "coordinator" / "startup" / "rootCA.pem").read_bytes()
    both = old_root + root.public_bytes(serialization.Encoding.PEM)
    (tmp_path / "kits" / "coordinator" / "startup" / "rootCA.pem").write_bytes(both)
    link = NvflareLink(
        tmp_path / "kits" / "coordinator", Kit.read(tmp_path / "kits" / "coordinator", "coordinator"), tmp_path / "work"
    )
    try:
        wait_until(lambda: handshake(own.port, tmp_path / "kits" / "south"))
        valid = certificate_from(copied(own, "north", "valid"), issuer=issuer, signing=root_key, days=(-9, 9))
        expired = certificate_from(copied(own, "north", "expired"), issuer=issuer, signing=root_key, days=(-9, -1))
        assert handshake(own.port, valid)
        assert not handshake(own.port, expired)
        with pytest.raises(StudyError, match=r"client\.crt expired on 20"):
            Kit.read(expired, "site")
        begins = certificate_from(copied(own, "north", "early"), issuer=issuer, signing=root_key, days=(2, 9))
        with pytest.raises(StudyError, match="clock"):
            Kit.read(begins, "site")
    finally:
        link.close(done=True)


def test_a_kit_of_another_study_is_refused(server):
    own, link = server
    other = own.folder / "other.toml"
    other.write_text((own.folder / "study.toml").read_text().replace('"three"', '"another"'))
    own.enrol("others", study="other.toml")
    assert not handshake(own.port, own.folder / "others" / "north")
    own.serve("north", kits="others")
    own.serve("south")
    wait_until(lambda: "south" in link._connected_sites())  # time enough for north, which came first
    assert "north" not in link._connected_sites()
    own.stop()


def test_a_study_that_the_kits_were_not_made_for_is_refused_at_either_end_before_anything_is_sent(tmp_path, capsys):
    own = Federation3.made(tmp_path)
    for path in (tmp_path / "study.toml", tmp_path / "kits" / "north" / "study.toml"):
        path.write_text(path.read_text() + "# one more line\n")
    capsys.readouterr()
    words = ["coordinate", tmp_path / "study.toml", "--engine", "nvflare", "--out", tmp_path / "run"]
    words += ["--own", tmp_path / "kits" / "coordinator" / "coordinator.toml"]
    assert main([str(word) for word in words]) == 2
    assert "the kit of the coordinator was made for a different text of the study 'three'" in capsys.readouterr().err
    assert not (tmp_path / "run" / "nvflare").exists()
    assert main(["site", "serve", str(tmp_path / "kits" / "north"), "--data", str(tmp_path / "north.csv")]) == 2
    assert "the kit of site 'north' was made for a different text" in capsys.readouterr().err
    assert not own.sites


@pytest.mark.parametrize("key", ["coordinator/startup/server.key", "coordinator/admin/startup/client.key"])
def test_a_kit_whose_keys_others_can_read_is_not_used(server, key):
    own, _ = server
    folder = copied(own, "coordinator", f"open-{key.partition('/')[2].partition('/')[0]}")
    (folder / key.partition("/")[2]).chmod(0o644)
    with pytest.raises(StudyError, match="others can read the private key"):
        Kit.read(folder, "coordinator")


def test_nothing_of_a_row_reaches_the_coordinator_even_when_a_site_fails_and_quotes_it(tmp_path):
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from fedclust.engines.nvflare.startup_kit import ADMIN_NAME

    own = Federation3.made(tmp_path, mode="plain")
    rows = np.loadtxt(tmp_path / "south.csv", delimiter=",", skiprows=1)
    rows[3, 1] = MARKER
    np.savetxt(tmp_path / "south.csv", rows, delimiter=",", header="age,bp", comments="", fmt="%.17g")
    (tmp_path / "failing.py").write_text(FAILING)
    own.serve("north", "west")
    own.serve("south", command=[sys.executable, tmp_path / "failing.py"])
    run = own.coordinate("run")
    try:
        assert run.wait(400) == 1
        assert "south: an error occurred at the site; see trouble.log there" in own.said("run")
        needles = [b"7431.52", b"planted", struct.pack("<d", MARKER), struct.pack(">d", MARKER)]
        assert grepped(tmp_path / "kits" / "south" / "state", needles)  # the site's own log has it: the marker works
        assert grepped(tmp_path / "run", needles) == []
        assert grepped(tmp_path / "kits" / "coordinator", needles) == []
        assert b"7431" not in (tmp_path / "run.said").read_bytes()
        # What an administrator of the server may ask a site for.
        folder = tmp_path / "kits" / "coordinator"
        link = NvflareLink(folder, Kit.read(folder, "coordinator"), tmp_path / "work")
        try:
            wait_until(lambda: "south" in link._connected_sites())
            session = new_secure_session(ADMIN_NAME, str(tmp_path / "work" / "admin"))
            for ask in (
                lambda: session.ls_target("south"),
                lambda: session.tail_target_log("south"),
                lambda: session.cat_target("south", file="log.txt"),
                lambda: session.report_resources("client", ["south"]),
                lambda: session.get_client_env(["south"]),
                lambda: session.restart("client", ["south"]),
            ):
                try:
                    told = str(ask())
                except Exception as refused:
                    told = str(refused)
                assert "uthoriz" in told or "denied" in told.lower(), told
            session.close()
        finally:
            link.close(done=True)
    finally:
        own.stop()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs network namespaces")
def test_a_federation_needs_and_calls_nothing_but_loopback(tmp_path):
    own = Federation3.made(tmp_path)
    script = tmp_path / "inside.py"
    script.write_text(
        textwrap.dedent(f"""
        import contextlib, socket, sys
        from pathlib import Path
        sys.path.insert(0, {str(sys.path[0])!r})
        sys.path.insert(0, {str(__file__).rpartition("/")[0]!r})
        from served_federation import Federation3
        def unrouted():
            head, counts = [l.split() for l in Path("/proc/net/snmp").read_text().splitlines() if l.startswith("Ip:")]
            six = [l.split() for l in Path("/proc/net/snmp6").read_text().splitlines() if "Ip6OutNoRoutes" in l]
            return int(dict(zip(head, counts))["OutNoRoutes"]) + sum(int(line[1]) for line in six)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect(("10.255.255.255", 1))  # that a way outside was looked for would be seen
        assert unrouted() == 1, unrouted()
        before = unrouted()
        own = Federation3(Path({str(tmp_path)!r}), port={own.port})
        own.serve()
        code = own.coordinate("run").wait(400)
        own.stop()
        print("code", code, "unrouted", unrouted() - before)
        """)
    )
    inside = f"ip link set lo up && exec {sys.executable} {script}"
    done = subprocess.run(["unshare", "-n", "sh", "-c", inside], capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine allows no network namespaces")
    found = done.stdout.split()
    assert found[:3] == ["code", "0", "unrouted"], done.stdout + done.stderr + own.said("run")
    assert own.model() == own.reference()
    assert int(found[3]) == 0
