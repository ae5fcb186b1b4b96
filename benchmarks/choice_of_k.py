"""How often the default of `select_k` is right, on sets of ten kinds that are drawn for it, and what it costs.

    python -m benchmarks choice_of_k [--seed 30000] [--sets 30] [--floors 1 10] [--draws first second] [--kinds moons]

Each set has K clusters of known distribution. Sets on which the Bayes rule with the true parameters labels less than
.93 of the rows rightly are drawn again. Moons and rings are right if they are called "not round", and sets without
clusters if the verdict is "none". The second draws are from other distributions with the same names: K means in a box,
sizes that differ up to eightfold, independent t columns, categories that say nothing. The last table has the share of
right choices for each word of certainty, without moons and rings.
"""

from __future__ import annotations

import argparse
import json as json_text
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.drawn_groups import KINDS, Drawn, draw
from fedclust.core.effects import Ask, Protocol, rewrite
from fedclust.federation.derived_federations import federation_of_rows
from fedclust.questions import bounds
from fedclust.questions.choice_of_k import choice_notes
from fedclust.questions.choice_of_k.choice import KChoice, choose_groups

NOT_ROUND_KINDS = ("moons", "rings")
DRAWS = ("first", "second")


@dataclass(frozen=True)
class Outcome:
    """One set: what was drawn, what was found, the CPU seconds, the exchanges and the opened numbers."""

    kind: str
    seed: int
    draws: str
    floor: int
    k: int
    rows: int
    columns: int
    found: int
    verdict: str
    certainty: str
    seconds: float
    exchanges: int
    numbers: int

    @property
    def is_right(self) -> bool:
        if self.kind in NOT_ROUND_KINDS:
            return self.verdict == "not round"
        return self.found == self.k and (self.k > 1 or self.verdict == "none")


def choose(rows: np.ndarray, floor: int = 1) -> tuple[KChoice, int, int]:
    """The choice over rows at one site, with the exchanges and the opened numbers."""
    fed = federation_of_rows(rows)
    opened: list[int] = []
    found = fed.run(_count_numbers(_script(rows.shape[1], floor), opened))[0]
    return found, len(opened), sum(opened)


def _script(columns: int, floor: int) -> Protocol[KChoice]:
    view = yield from bounds.agree_on_bounds(columns)
    return (yield from choose_groups(view, seed=0, floor=floor, everyone=True))


def _count_numbers(protocol: Protocol[KChoice], opened: list[int]) -> Protocol[KChoice]:
    """Run a protocol and note how many numbers each opened sum holds."""

    def ask_and_count(ask: Ask) -> Protocol[Any]:
        answer = yield ask
        release = answer[0]
        opened.append(sum(math.prod(release.field_value(name).shape) for name in release.schema()))
        return answer

    return (yield from rewrite(protocol, ask_and_count))


def measure(kind: str, seed: int, floor: int, draws: str) -> Outcome:
    """Draw one set and choose K."""
    drawn: Drawn = draw(kind, seed, second=draws == "second")
    began = time.process_time()
    found, exchanges, numbers = choose(drawn.rows, floor)
    seconds = time.process_time() - began
    certainty = choice_notes.how_sure(found)[0]
    rows, columns = drawn.rows.shape
    return Outcome(
        kind,
        seed,
        draws,
        floor,
        drawn.k,
        rows,
        columns,
        found.k,
        found.verdict,
        certainty,
        round(seconds, 3),
        exchanges,
        numbers,
    )


def show(kind: str, outcomes: list[Outcome]) -> str:
    """One line of the table."""
    right = np.array([one.is_right for one in outcomes])
    seconds = [one.seconds for one in outcomes]
    return (
        f"{kind:10} {100 * right.mean():5.1f}% right of {len(right)}, CPU {np.mean(seconds):.2f} s "
        f"(most {max(seconds):.2f}), {np.mean([one.exchanges for one in outcomes]):.0f} exchanges, "
        f"{np.mean([one.numbers for one in outcomes]):,.0f} numbers"
    )


def show_certainty(outcomes: list[Outcome]) -> str:
    """How often choices of each certainty are right, with and without groups."""
    lines = []
    for verdict, name in (("groups", "groups"), ("none", "no groups")):
        for word in ("clear", "likely", "unsure"):
            own = [one.is_right for one in outcomes if one.certainty == word and one.verdict == verdict]
            if own:
                lines.append(f"    {name}, {word}: {sum(own)} of {len(own)} right ({100 * np.mean(own):.0f}%)")
    return "\n".join(lines)


def measure_kinds(asked: argparse.Namespace, floor: int, draws: str, *, is_silent: bool) -> list[Outcome]:
    """Measure all kinds, and print a table."""
    whole: list[Outcome] = []
    if not is_silent:
        print(f"Sums of at least {floor} rows, {draws} draws, seeds from {asked.seed}")
    for kind in asked.kinds:
        own = [measure(kind, seed, floor, draws) for seed in range(asked.seed, asked.seed + asked.sets)]
        whole += own
        if not is_silent:
            print(show(kind, own), flush=True)
            for one in own if asked.wrong else ():
                if not one.is_right:
                    print(f"    seed {one.seed}: K {one.k}, found {one.found}, {one.verdict}, {one.rows} rows")
    if not is_silent:
        others = [one for one in whole if one.kind not in NOT_ROUND_KINDS]
        if others:
            print(show("others", others))
            print(show_certainty(others))
    return whole


def main(arguments: list[str] | None = None, *, json: bool = False) -> int:
    """Draw sets, choose K on each, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks choice_of_k", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=30_000, help="the first seed")
    parser.add_argument("--sets", type=int, default=30, help="sets of each kind")
    parser.add_argument("--floors", type=int, nargs="+", default=[1, 10], help="the fewest rows behind a sum")
    parser.add_argument("--draws", nargs="+", choices=DRAWS, default=list(DRAWS), help="which distributions")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="some of the kinds")
    parser.add_argument("--wrong", action="store_true", help="list the sets with a wrong answer")
    asked = parser.parse_args(arguments)
    whole = [
        outcome
        for draws in asked.draws
        for floor in asked.floors
        for outcome in measure_kinds(asked, floor, draws, is_silent=json)
    ]
    if json:
        print(json_text.dumps([asdict(one) for one in whole]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
