"""A start-up kit makes a machine the coordinator or a site of exactly one study.

Certificates come from NVIDIA FLARE's own provisioning, under a root made for the study. The root's key is deleted, so
nobody who finds a folder can enrol more sites later. This module sets each right of the coordinator at a site and does
not use FLARE's defaults: no code from outside, no component but ours, no log, no shell, no restart.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from nvflare.lighter.constants import CtxKey
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from fedclust.core.atomic_files import write_file
from fedclust.core.errors import StudyError
from fedclust.site.approval import digest_study
from fedclust.site.site_file import check_key_permissions

KIT_FORMAT, KIT_VERSION = "fedclust-kit", 1
ADMIN_NAME, ORG_NAME, ADMIN_ROLE = "coordinator@fedclust.local", "fedclust", "project_admin"
SERVER_BRIDGE_PATH = "fedclust.engines.nvflare.server_bridge.ServerBridge"
SITE_EXECUTOR_PATH = "fedclust.engines.nvflare.site_bridge.SiteExecutor"
CERTIFICATE_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,60}")  # names that certificates may contain
MAX_CERTIFICATE_DAYS = 360  # longest validity in FLARE's provisioning
HEARTBEAT_TIMEOUT_SECONDS = 30  # seconds after which a silent site counts as gone
LOOPBACK_HOSTS = ("localhost", "127.0.0.1")
LAUNCHER_PACKAGE = "nvflare.app_common.job_launcher"
RESOURCE_MANAGER_PATH = "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager"
RESOURCE_CONSUMER_PATH = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
STORAGE_PATH = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"


@dataclass(frozen=True)
class Kit:
    """A kit's description: its owner, its study, its server, and the certificate names of all sites."""

    role: str  # "coordinator" or "site"
    name: str
    study: str
    digest: str  # of the study's text
    host: str
    port: int
    names: Mapping[str, str]  # certificate name of each site

    @classmethod
    def read(cls, folder: Path, role: str) -> Kit:
        path = folder / "kit.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if (found.pop("format"), found.pop("version")) != (KIT_FORMAT, KIT_VERSION):
                raise StudyError(
                    f"{folder} is a kit from another version of fedclust; run fedclust enrol again with this version"
                )
            kit = cls(**found)
        except FileNotFoundError:
            raise StudyError(
                f"{folder} is not a kit; fedclust enrol creates a kit for the coordinator and for each site"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StudyError(f"{path} is damaged; replace the kit with a fresh copy") from None
        if kit.role != role:
            raise StudyError(f"{folder} is the kit of {_owner_name(kit)}; use the kit of a {role} here")
        _check_certificate_dates(folder / "startup")
        for key in (*folder.glob("startup/*.key"), *folder.glob("admin/startup/*.key")):
            check_key_permissions(key)
        return kit

    def check_study(self, text: str) -> None:
        """Refuse a study that the kit was not made for, because every site would refuse it."""
        if digest_study(text) != self.digest:
            raise StudyError(
                f"the kit of {_owner_name(self)} was made for a different text of the study '{self.study}'; "
                "use the study.toml that came with the kits, without changes, or enrol again"
            )

    def write(self, folder: Path) -> None:
        document = {"format": KIT_FORMAT, "version": KIT_VERSION, **asdict(self)}
        write_file(folder / "kit.json", json.dumps(document, indent=1) + "\n")


def _check_certificate_dates(startup: Path) -> None:
    """Refuse certificates that have expired or are not yet valid; FLARE would reject their holder without a reason."""
    today = dt.datetime.now(dt.UTC)
    for path in startup.glob("*.crt"):
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
        except ValueError:
            raise StudyError(f"{path} is damaged; replace the kit with a fresh copy") from None
        if today > found.not_valid_after_utc:
            raise StudyError(f"the certificate in {path} expired on {found.not_valid_after_utc:%Y-%m-%d}; enrol again")
        if today < found.not_valid_before_utc:
            begin = f"{found.not_valid_before_utc:%Y-%m-%d}"
            raise StudyError(f"the certificate in {path} is valid from {begin}; check this machine's clock")


def _owner_name(kit: Kit) -> str:
    return "the coordinator" if kit.role == "coordinator" else f"site '{kit.name}'"


def provision_kits(out: Path, kits: Mapping[str, Kit], *, days: int) -> None:
    """Write certificates and FLARE's settings to `out/NAME` for each kit, including the coordinator's."""
    coordinator = next(kit for kit in kits.values() if kit.role == "coordinator")
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        made = _make_certificates(Path(scratch), coordinator, days)
        for folder, kit in kits.items():
            home = out / folder
            if kit.role == "site":
                _copy_startup_files(
                    made / kit.names[kit.name], home, ("client.crt", "client.key", "rootCA.pem", "fed_client.json")
                )
                _write_settings(home / "local", SITE_RESOURCES, SITE_RIGHTS)
            else:
                _copy_startup_files(
                    made / kit.host, home, ("server.crt", "server.key", "rootCA.pem", "fed_server.json")
                )
                _bind_to_loopback(home / "startup" / "fed_server.json", kit)
                _copy_startup_files(
                    made / ADMIN_NAME, home / "admin", ("client.crt", "client.key", "rootCA.pem", "fed_admin.json")
                )
                _use_local_server(home / "admin" / "startup" / "fed_admin.json")


def site_names(sites: tuple[str, ...]) -> dict[str, str]:
    """The sites' names in certificates: their own names if certificates allow them."""
    taken = {site for site in sites if CERTIFICATE_NAME_PATTERN.fullmatch(site)}
    names = {}
    for number, site in enumerate(sites, 1):
        name = site if site in taken else f"site-{number}"
        while name in taken and name != site:
            name += "x"
        names[site] = name
        taken.add(name)
    return names


def _make_certificates(scratch: Path, kit: Kit, days: int) -> Path:
    """Run FLARE's provisioning, and return the folder of its results."""
    if not 1 <= days <= MAX_CERTIFICATE_DAYS:
        raise StudyError(f"certificates cannot be valid for {days} days; choose 1 to {MAX_CERTIFICATE_DAYS} days")
    project = Project("fedclust", kit.study, props={"api_version": 3})
    ports = {"fed_learn_port": kit.port, "admin_port": kit.port, "connection_security": "mtls"}
    project.set_server(kit.host, ORG_NAME, {**ports, "host_names": list(LOOPBACK_HOSTS)})
    for name in kit.names.values():
        project.add_client(name, ORG_NAME, {})
    project.add_admin(ADMIN_NAME, ORG_NAME, {"role": ADMIN_ROLE})
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
        CertBuilder(root_valid_days=days),
    ]
    log = _Log()
    made = Provisioner(str(scratch), builders).provision(project, logger=log)
    if made.get(CtxKey.BUILD_ERROR):
        raise StudyError(f"NVIDIA FLARE could not make the certificates: {log.last}")
    return Path(made[CtxKey.CURRENT_PROD_DIR])


class _Log:
    """Keeps FLARE's last error message and drops the rest."""

    last = ""

    def error(self, text: str) -> None:
        self.last = text

    def info(self, text: str) -> None: ...
    def debug(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...


def _copy_startup_files(made: Path, home: Path, files: tuple[str, ...]) -> None:
    (home / "startup").mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in files:
        shutil.copyfile(made / "startup" / name, home / "startup" / name)
        if name.endswith(".key"):
            (home / "startup" / name).chmod(0o600)


def _bind_to_loopback(path: Path, kit: Kit) -> None:
    """Make FLARE listen on loopback only; with any other target address it listens on all interfaces."""
    config = json.loads(path.read_text())
    (server,) = config["servers"]
    server["service"]["target"] = f"localhost:{kit.port}"
    server["admin_server"] = "localhost"
    write_file(path, json.dumps(config, indent=2) + "\n")


def _use_local_server(path: Path) -> None:
    """Make the coordinator's console connect to the server on the same machine."""
    config = json.loads(path.read_text())
    config["admin"].update(host="localhost", uid_source="cert")
    write_file(path, json.dumps(config, indent=2) + "\n")


def make_server_workspace(kit: Path, work: Path) -> None:
    """Make a folder for FLARE's server, with the kit's certificates and settings that keep its files in the folder."""
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    (work / "startup").mkdir(mode=0o700, exist_ok=True)
    for file in (kit / "startup").iterdir():  # keys are linked, not copied; FLARE does not read linked folders
        link = work / "startup" / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
    _write_settings(work / "local", server_resources(work), SERVER_RIGHTS)


def _write_settings(local: Path, resources: Mapping[str, Any], rights: Mapping[str, str]) -> None:
    local.mkdir(mode=0o700, parents=True, exist_ok=True)
    policy = {"format_version": "1.0", "permissions": {ADMIN_ROLE: dict(rights)}}
    for name, document in (
        ("resources.json", resources),
        ("authorization.json", policy),
        ("log_config.json", LOG_CONFIG),
        ("comm_config.json", COMMUNICATION_CONFIG),
    ):
        write_file(local / name, json.dumps(document, indent=2) + "\n")


COMMUNICATION_CONFIG: dict[str, Any] = {
    "allow_adhoc_conns": False,
    "backbone_conn_gen": 2,
    # FLARE keeps a thread for every reply while it might send it again, by default a minute. A long run would have
    # thousands of them. We ask again for lost replies ourselves.
    "streaming_retry_timeout": 5.0,
    "streaming_retry_wait": 2.0,
    # Buffer bytes for each message in transit. FLARE's default of a megabyte suits models; its window may hold 1,024.
    "streaming_chunk_size": 68 << 10,
}
# Warnings and errors go to one file next to the kit; nothing goes to the console.
LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "base": {
            "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {
        "file": {
            "class": "logging.handlers.RotatingFileHandler",
            "formatter": "base",
            "filename": "log.txt",
            "maxBytes": 5_000_000,
            "backupCount": 2,
        }
    },
    "loggers": {"root": {"level": "WARNING", "handlers": ["file"]}},
}
# The coordinator may start a site's installed component and stop it, and nothing else.
SITE_RIGHTS = {
    "submit_job": "any",
    "manage_job": "any",
    "clone_job": "none",
    "download_job": "none",
    "view": "none",
    "operate": "none",
    "shell_commands": "none",
    "byoc": "none",
}
SERVER_RIGHTS = {**SITE_RIGHTS, "view": "any", "operate": "any"}
SITE_RESOURCES: dict[str, Any] = {
    "format_version": 2,
    "class_list_enforcement_mode": "enforce",
    "class_allow_list": [SITE_EXECUTOR_PATH],
    "allow_log_streaming": False,
    "client": {"retry_timeout": 30, "compression": "Gzip"},
    "components": [
        {"id": "resource_manager", "path": RESOURCE_MANAGER_PATH, "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0}},
        {"id": "resource_consumer", "path": RESOURCE_CONSUMER_PATH, "args": {}},
        {
            "id": "process_launcher",
            "path": f"{LAUNCHER_PACKAGE}.client_process_launcher.ClientProcessJobLauncher",
            "args": {},
        },
    ],
}


def server_resources(work: Path) -> dict[str, Any]:
    """The coordinator's settings; FLARE's defaults would put jobs into a folder that all users of the machine share."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SERVER_BRIDGE_PATH],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": HEARTBEAT_TIMEOUT_SECONDS,
                "download_job_url": "http://localhost/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {"path": STORAGE_PATH, "args": {"root_dir": str(work / "snapshots"), "uri_root": "/"}},
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 2.0},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(work / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": STORAGE_PATH},
            {
                "id": "process_launcher",
                "path": f"{LAUNCHER_PACKAGE}.server_process_launcher.ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }
