"""The last question of a verified run: a site answers once its own replay has ended with the coordinator's model."""

from __future__ import annotations

from dataclasses import dataclass

from fedclust.core.effects import Protocol, each, handler
from fedclust.core.release import Done
from fedclust.core.site_interface import Site
from fedclust.core.study_terms import proves_sums
from fedclust.privacy.verified.group_key import receive_group_key, send_group_key


@dataclass(frozen=True)
class FinishQuestion:
    """The digest of the coordinator's model; a site that found another model refuses the question."""

    model: bytes


@handler(releases=Done, reads="nothing", before_alignment=True, contract=proves_sums)
def finish(site: Site, ask: FinishQuestion) -> Done:  # noqa: ARG001 the replay compares the models
    """Confirm that the site found the same model."""
    return Done()


VERIFICATION_QUESTIONS = (send_group_key.name, receive_group_key.name, finish.name)
"""What only a verified run asks, once."""


def confirm_model(digest: bytes) -> Protocol[None]:
    """Ask every site whether it found the same model."""
    yield from each(finish, FinishQuestion(digest))
