"""Files that a site keeps: put in place whole, lines wholly or not at all, and never through a link left there."""

import subprocess
import sys

import pytest

from fedclust.core.atomic_files import write_file

SCRIPT = """
import resource, signal, sys
from fedclust.core.atomic_files import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open(sys.argv[1], "w+", encoding="utf-8") as file:
    assert append_line(file, "one\\n", durable=True) == 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, resource.RLIM_INFINITY))
    try:
        append_line(file, "the second, too long\\n", durable=True)
    except OSError as error:
        print(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert append_line(file, "third\\n", durable=True) == 4
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file's size")
def test_a_line_that_finds_no_room_leaves_nothing_behind(tmp_path):
    path = tmp_path / "lines"
    done = subprocess.run([sys.executable, "-c", SCRIPT, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "OSError\n"), done.stderr
    assert path.read_text(encoding="utf-8") == "one\nthird\n"


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "letter.msg.new").symlink_to(tmp_path / "victim")
    write_file(tmp_path / "letter.msg", b"text")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "letter.msg").read_bytes() == b"text"
    assert not (tmp_path / "letter.msg").is_symlink()


def test_a_draft_that_a_crash_left_is_no_hindrance(tmp_path):
    (tmp_path / "letter.msg.new").write_bytes(b"half")
    write_file(tmp_path / "letter.msg", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.msg"]
