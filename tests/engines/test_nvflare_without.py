"""A site that is left out is in no job over FLARE, so that whatever becomes of it breaks none."""

import json
import threading

import pytest

pytest.importorskip("nvflare", reason="an extra; make test-engines installs it")

from served_federation import Federation3, children, command_of, wait_until

from fedclust.engines.nvflare.nvflare_link import NvflareLink
from fedclust.engines.nvflare.nvflare_serve import SiteClient
from fedclust.engines.nvflare.startup_kit import Kit

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]

NAMES = ("north", "south", "west")


def test_a_site_that_is_left_out_is_in_no_job_and_may_die_as_often_as_it_likes(tmp_path):
    kits = Federation3.made(tmp_path).folder / "kits"
    link = NvflareLink(
        kits / "coordinator", Kit.read(kits / "coordinator", "coordinator"), tmp_path / "work", without={"south"}
    )
    sites = {name: SiteClient(kits / name, lambda data: data + b" heard") for name in NAMES}
    over = threading.Event()
    try:
        for site in sites.values():
            threading.Thread(target=site.run_until, args=(over,), daemon=True).start()
        wait_until(lambda: set(link._open_console().last_contacts()) == set(NAMES))
        for _ in range(2):
            answers = dict(link.carry({"north": b"one", "west": b"two"}, timeout=60))
            assert answers == {"north": b"one heard", "west": b"two heard"}
            about = json.loads((tmp_path / "work" / "job" / "meta.json").read_text())
            assert about["mandatory_clients"] == ["north", "west"]
            assert not [pid for pid in children(sites["south"]._client.pid) if "worker_process" in command_of(pid)]
            sites["south"]._client.kill()
        assert link.jobs_started == 1
    finally:
        over.set()
        link.close(done=True)
        for site in sites.values():
            site.close()
