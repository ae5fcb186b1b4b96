"""Answers with noise: each is paid for, drawn once and stored, so that the same noise never covers two answers.

Each step is on disk before the next: the price, the answer with its noise, the ledger's line. The same question to the
same sites in the same run gets the stored answer again at no further cost, even if the rows have changed since. After a
crash before the answer was stored, the site pays and draws again; nothing of the first draw has left.

Under masks that tolerate dropouts, a repeated question counts as a new one. There the sites in a sum are known only
later, and the difference of two sums over different sites with the same noise would contain hardly any noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedclust.core import ring, wire
from fedclust.core.atomic_files import sync_folder, write_file
from fedclust.core.counted_nouns import count_noun
from fedclust.core.envelope import Call
from fedclust.core.errors import DataError, OverBudget
from fedclust.core.noise_price import NOISE_UNITS_PER_ONE, Noisy, exact_from_noise_units
from fedclust.privacy.discrete_noise import draw_gaussian_noise
from fedclust.privacy.roster import is_lasting
from fedclust.site.policy import Policy
from fedclust.site.privacy_spending import PrivacySpending, Purchase

DEFAULT_DELTA = 1e-6  # if a policy names none


class NoiseBudget:
    """Pays for a site's answers with noise and stores them."""

    def __init__(
        self, policy: Policy, folder: Path | None = None, *, durable: bool = True, study_rho: float = 0.0
    ) -> None:
        self._policy, self._folder, self._durable = policy, folder, durable
        self._study_rho = study_rho  # what the study that is served may spend; 0: no limit of its own
        self._kept_answers: dict[str, bytes] = {}

    @cached_property
    def spending(self) -> PrivacySpending:
        """The site's budget, opened when something first costs."""
        found = PrivacySpending(
            self._folder, self._policy.epsilon, self._policy.delta or DEFAULT_DELTA, durable=self._durable
        )
        given = sum(1 for _ in (self._folder / "noisy").glob("*")) if self._folder is not None else 0
        if self._policy.epsilon and given > len(found.purchases):
            raise DataError(
                f"{self._folder} holds {count_noun(given, 'answer')} with noise, but budget.jsonl "
                "records payment for only "
                f"{len(found.purchases)}: the file was truncated or restored from a backup; restore the "
                "complete file"
            )
        return found

    def answer_with_noise(self, call: Call, release_type: type[Noisy], compute_answer: Callable[[], Any]) -> Any:
        """Return the answer with the noise that its price requires; call `compute_answer` only if none is stored."""
        name = _answer_name(call)
        if (kept := self._find_answer(name)) is not None:
            return wire.decode(release_type, kept)
        price = call.message.price
        self._check_study_limit(call.run, price.rho)
        release = compute_answer()  # an invalid question ends here and costs nothing
        self.spending.spend(Purchase(call.run, call.step, call.handler, call.digest.hex(), price.rho))
        exact: ring.Exact = release.sums
        noise = draw_gaussian_noise(int(np.prod(exact.shape)), NOISE_UNITS_PER_ONE * price.sigma).reshape(exact.shape)
        covered = replace(release, sums=ring.total([exact, exact_from_noise_units(noise)]))
        self._keep_answer(name, wire.encode(covered))
        return covered

    def _check_study_limit(self, run: str, rho: float) -> None:
        """Refuse what the runs of a study would spend beyond the epsilon that the study's text says."""
        study = run.partition("-")[2] or run
        paid = [one.rho for one in self.spending.purchases if (one.run.partition("-")[2] or one.run) == study]
        if self._study_rho and math.fsum([*paid, rho]) > self._study_rho * (1 + 2.0**-20):
            raise OverBudget(
                "the study has already spent what its epsilon allows; a further run of it needs a further study"
            )

    def _find_answer(self, name: str) -> bytes | None:
        if (
            self._folder is not None
            and name not in self._kept_answers
            and (path := self._folder / "noisy" / name).exists()
        ):
            return path.read_bytes()
        return self._kept_answers.get(name)

    def _keep_answer(self, name: str, text: bytes) -> None:
        if self._folder is None:
            self._kept_answers[name] = text
            return
        path = self._folder / "noisy" / name
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self._folder)
        write_file(path, text)


def _answer_name(call: Call) -> str:
    """Return one name for a question, its run and its sites; the keys' name is included if sites may drop out."""
    masks = () if call.masks is None or is_lasting(call.masks) else (call.masks,)
    parts = (call.run, call.question_digest, *sorted(call.cohort), *masks)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
