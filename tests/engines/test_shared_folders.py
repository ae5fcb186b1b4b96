"""Mail folders that two users of one machine share: messages are for both, keys and state for their owner alone."""

import os
import stat
import traceback

import pytest
from federation_by_files import ByFiles, begun

from fedclust.core.errors import Waiting
from fedclust.engines.files.message_file import Chain
from fedclust.engines.files.message_folder import MessageFolder
from fedclust.privacy.keys import Identity

GROUP = 61234
MESSAGES = Chain("r").append_message("answer", b"x", Identity.new(), ("north", ""), in_clear=True).undelivered


@pytest.fixture(autouse=True)
def _strict():
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def as_user(uid, act, groups=(GROUP,)):
    """Whether a user of these groups, and of one of its own, can do something here."""
    child = os.fork()
    if not child:
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            os._exit(0 if act() else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("folder", "inside", "message"), [(0o2770, 0o2770, 0o660), (0o770, 0o770, 0o660), (0o2750, 0o2750, 0o640)]
)
def test_messages_are_for_those_with_whom_their_folder_is_shared(folder, inside, message, tmp_path):
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail").chmod(folder)
    MessageFolder(tmp_path / "mail" / "to" / "north", print).write_messages(MESSAGES)
    assert mode(tmp_path / "mail" / "to") == mode(tmp_path / "mail" / "to" / "north") == inside
    assert {mode(path) for path in (tmp_path / "mail" / "to" / "north").iterdir()} == {message}


@pytest.mark.parametrize("folder", [0o700, 0o755, 0o705])
def test_messages_in_a_folder_that_is_not_shared_are_for_their_owner_alone(folder, tmp_path):
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail").chmod(folder)
    MessageFolder(tmp_path / "mail" / "to" / "north", print).write_messages(MESSAGES)
    assert mode(tmp_path / "mail" / "to") == mode(tmp_path / "mail" / "to" / "north") == 0o700
    assert {mode(path) for path in (tmp_path / "mail" / "to" / "north").iterdir()} == {0o600}


def test_what_is_not_mail_stays_its_owners_whatever_is_shared(tmp_path):
    fed = ByFiles.made(tmp_path / "f", k="2", more="max_iter = 1")
    fed.mail.mkdir()
    fed.mail.chmod(0o2770)
    _, go_on = begun(fed)
    with pytest.raises(Waiting):
        go_on()
    fed.around()
    with pytest.raises(Waiting):
        go_on()
    messages = [path for path in fed.mail.rglob("*") if path.is_file()]
    assert messages
    assert {mode(path) for path in messages if path.parent.parent.name == "to"} == {0o660}
    own = [*(fed.folder / "run").rglob("*"), *(fed.folder / "north" / "state").rglob("*")]
    own += [fed.folder / name / "own.key" for name in ("coordinator", "north")]
    assert len(own) > 10
    assert all(mode(path) & 0o077 == 0 for path in own)


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users, so root")
def test_two_users_of_one_group_read_and_clear_away_each_others_messages(tmp_path, monkeypatch):
    mail = tmp_path / "mail"
    mail.mkdir()
    os.chown(mail, 0, GROUP)
    mail.chmod(0o2770)
    monkeypatch.chdir(mail)  # the folders above it are nobody's business
    box = MessageFolder(mail.relative_to(mail) / "north", lambda *_: None)
    assert as_user(61001, lambda: box.write_messages(MESSAGES))
    assert as_user(61002, lambda: [name for name, *_ in box.read_messages()] == list(MESSAGES))
    assert not as_user(61002, box.read_messages, groups=())
    assert as_user(61002, lambda: box.remove(MESSAGES) or not box.read_messages())
