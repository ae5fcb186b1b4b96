"""What letters cannot do without: a key to sign them with, the sites' keys to know theirs by, a pause between looks."""

from __future__ import annotations

from fedclust.core.errors import StudyError
from fedclust.engines.files import poll_of
from fedclust.engines.own import read_own
from fedclust.engines.registry import Posting


def check(posting: Posting) -> None:
    """Refuse a run of engine 'files' that could not write its first letter."""
    if posting.own is None:
        raise StudyError("engine 'files' signs its letters; name the coordinator's own file with --own")
    own = read_own(posting.own, "files")
    poll_of(posting, own)
    own.signer()
    own.keys_of(posting.parties)
