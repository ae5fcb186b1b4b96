"""Rehearses a study on one site's rows: the engine that records it, other rows of the same kind, the site's gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedclust.app.analysis import describe
from fedclust.app.choose_k import select_k
from fedclust.app.study.study_parts import Study
from fedclust.app.table_risks import DEFAULT_FLOOR
from fedclust.core import wire
from fedclust.core.drive import Engine, Reply
from fedclust.core.effects import HANDLERS
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import FedclustError, NotAsDeclared
from fedclust.core.release import Release
from fedclust.core.types import Array, PartyId, Units
from fedclust.federation.derived_federations import federation_with_data
from fedclust.federation.federation import Federation
from fedclust.models.assignment import CentersModel
from fedclust.models.base import Model
from fedclust.privacy.keys import Identity
from fedclust.site.approval import digest_study
from fedclust.site.gate import Gate
from fedclust.site.ledger import Ledger
from fedclust.site.policy import PROFILES, Policy
from fedclust.site.site_data import HandlerContext, SiteData, missing_rule_of
from fedclust.site.sources import DerivedSource
from fedclust.site.vault import Vaults

Exchange = tuple[Call, Release]  # a question and its answer


class RecordingEngine:
    """An engine that records questions and answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.exchanges: list[Exchange] = []

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return self.engine.parties

    def exchange(self, calls: Mapping[PartyId, Call], *, timeout: float | None, quorum: int) -> dict[PartyId, Reply]:
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        self.exchanges += [(calls[p], reply.release) for p, reply in replies.items() if isinstance(reply, SealedAnswer)]
        return replies


class OtherRows(DerivedSource):
    """Different rows of the same kind: every second row, divided by eight, so that bounds still hold."""

    def blocks(self) -> Iterator[Array]:
        return (block[:, ::2] / 8 for block in self.source.blocks())

    def ids(self) -> Any:
        ids = self.source.ids()
        return None if ids is None else ids[::2]


class RehearsalGate:
    """The site's gate, used as in a real run, with the same cohort and masks; nothing is sent."""

    def __init__(self, study: Study, site_data: SiteData, policy: Policy) -> None:
        self.mode = study.aggregation.mode
        self.cohort = tuple(site.name for site in study.sites)
        self.run = f"plan-{digest_study(study.text)}"
        self.site_data = site_data
        everyone = Vaults(Identity.new(), dict.fromkeys(self.cohort, b""))
        self.gate = Gate(
            site_data.party,
            policy,
            Ledger(),
            lambda: everyone,
            split="labels" if study.cluster.options.get("opens") == "labels" else study.split,
            method=study.cluster.method,
            floored=bool(opening_floor(study)),
        )

    @property
    def has_abstained(self) -> bool:
        """Whether the site has abstained."""
        return self.gate.ledger.tally(self.run).abstained is not None

    def is_masked(self, call: Call) -> bool:
        return self.mode != "plain" and call.want == "total"

    def judge_answer(self, call: Call, release: Release) -> str | None:
        """Return the code of the refusal, or None."""
        handler = HANDLERS[call.handler]
        masks = "lasting-1" if self.is_masked(call) else None
        real = replace(call, run=self.run, cohort=self.cohort, masks=masks, is_encrypted=self.mode == "blind")
        context = HandlerContext(self.site_data, (0, call.step), {}, missing_rule_of(handler, call.message))
        try:
            release = self.gate.receive(handler, release)
        except NotAsDeclared:
            return "not-as-declared"
        code = self.gate.admit(real, handler, context.rows) or self.gate.judge(real, handler, release, context)
        if code is None:
            self.gate.record_as_sent(real, release, wire.encoded_size(release))
        return code


def rehearse_own_parts(study: Study, alone: Study) -> list[Exchange]:
    """Rehearse what a coordinator sees in plain mode, where no floor applies to a site's own part of a sum."""
    if study.aggregation.mode != "plain" or not opening_floor(study) or len(study.sites) == 1:
        return []
    options = {name: value for name, value in alone.cluster.options.items() if name not in ("opening", "floor")}
    exact = replace(alone, cluster=replace(alone.cluster, options=options))
    return rehearse_study(exact, exact.open_federation())[0]


def labels_of_rehearsal(model: Model | None, site_data: SiteData, split: str) -> Units | None:
    """Return the cluster of each of the site's rows in the rehearsal, if its model tells."""
    if model is None or model.labels_ is not None or split == "columns" or not isinstance(model, CentersModel):
        return None if model is None else model.labels_
    return np.concatenate([model.labels_of_block(block) for block in site_data.source.blocks()])


def rehearse_study(study: Study, fed: Federation, *, strict: bool = True) -> tuple[list[Exchange], Model | None]:
    """Return every question of a run on one site's rows, with its answer, and the model if the run ended."""
    engine, model = RecordingEngine(fed.engine), None
    fed.engine = engine
    fed.use_engine(engine)
    try:
        model = _run_study(study, fed)
    except FedclustError:
        if strict:
            raise
    return engine.exchanges, model


def _run_study(study: Study, fed: Federation) -> Model:
    estimator, choice = study.make_estimator(fed.columns), study.cluster.choice
    if choice is not None:
        found = select_k(estimator, fed, choice.ks, **choice.options)
        describe(found.model, fed, found)
        return found.model
    if "tol" in estimator.get_params():
        estimator.set_params(tol=None)  # the maximum number of rounds
    describe(estimator.fit(fed), fed)
    return estimator


def federation_of_other_rows(fed: Federation, party: PartyId) -> Federation:
    own_data = fed.site_data[party]
    return federation_with_data(
        fed, {party: (SiteData(party, OtherRows(own_data.source), own_data.schema), PROFILES["none"])}
    )


def opening_floor(study: Study) -> int:
    """Return the fewest changed rows from which on a study opens the sum of a cluster; 0 if it opens every sum."""
    options = study.cluster.options
    return int(options.get("floor", DEFAULT_FLOOR)) if options.get("opening") == "floored" else 0
