"""The site's own record of everything that left it, as a hash chain of lines."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedclust.core.atomic_files import append_line
from fedclust.core.errors import DataError
from fedclust.core.run_series import parse_series

LEDGER_START = "fedclust ledger 2"
ANSWER_SEPARATOR = "/"  # between the digests of a question and of its answer


@dataclass(frozen=True)
class LedgerEntry:
    """One answer that left: to which question, as a sum or on its own, and how many bytes.

    `answer` is a digest of what a mask hid, so that the mask never hides anything else. If the rules count them,
    `numbers` is how many numbers left on their own, `question` is a digest of the question (and of an answer of another
    package, which may differ each time), `cohort` names the sites that were asked for a masked sum, `opened` names
    those whose sum this answer helps to open, and `gaps` is how rows with missing values were handled. An entry with
    `abstained` is about an answer that did not leave, and gives the reason why none will in this run.
    """

    run: str
    step: int
    handler: str
    want: str
    parties: int
    call: str
    size: int
    answer: str = ""
    numbers: int = 0
    question: str = ""
    cohort: str = ""
    opened: str = ""
    gaps: str = ""
    abstained: str = ""


@dataclass
class Tally:
    """What a run has received so far; `cohorts_by_question` covers all runs."""

    cohorts_by_question: dict[str, frozenset[str]]
    calls: int = 0
    by_handler: Counter[str] = field(default_factory=Counter)
    numbers: int = 0
    questions: set[str] = field(default_factory=set)
    distinct_questions: Counter[str] = field(default_factory=Counter)  # questions, by handler
    last_answers: dict[str, str] = field(default_factory=dict)  # of other packages, by question
    times_asked: Counter[str] = field(default_factory=Counter)  # questions of other packages
    timing_bits: int = 0  # what the number of equal answers before each other one can hold
    series: dict[str, set[str]] = field(default_factory=dict)  # of runs that received an answer, by handler
    cohorts: set[frozenset[str]] = field(default_factory=set)
    gaps: str = ""
    abstained: str | None = None

    def cohort_for(self, question: str) -> frozenset[str] | None:
        """Return the sites for whose masked sum a question was answered."""
        return self.cohorts_by_question.get(question)

    def count_entry(self, entry: LedgerEntry) -> None:
        self.calls += 1
        self.by_handler[entry.handler] += 1
        self.series.setdefault(entry.handler, set()).add(parse_series(entry.run)[0])
        if entry.cohort:
            self.cohorts_by_question[entry.question] = frozenset(entry.cohort.split("\n"))
        if entry.opened:
            self.cohorts.add(frozenset(entry.opened.split("\n")))
        self.gaps = self.gaps or entry.gaps
        if self.reveals_more(entry.question):
            self.numbers += entry.numbers
        if entry.question and self.reveals_more(entry.question):
            self.distinct_questions[entry.handler] += 1
            self.timing_bits += self.bits_of_timing(entry.question)
            self.questions |= {entry.question, entry.question.partition(ANSWER_SEPARATOR)[0]}
        question, separator, answer = entry.question.partition(ANSWER_SEPARATOR)
        if separator:
            self.last_answers[question] = answer
            self.times_asked[question] += 1

    def reveals_more(self, variant: str) -> bool:
        """Return whether an answer reveals more than those before it.

        An answer of another package reveals nothing if it is the latest answer to the same question. An answer that was
        sent earlier reveals something: two answers that alternate can spell a row.
        """
        question, separator, answer = variant.partition(ANSWER_SEPARATOR)
        return self.last_answers.get(question) != answer if separator else variant not in self.questions

    def bits_of_timing(self, variant: str) -> int:
        """Return how many bits another package could hide in when an answer to the same question changes."""
        return self.times_asked[variant.partition(ANSWER_SEPARATOR)[0]].bit_length()


class Ledger:
    """Entries in memory, and also in a file that outlives the process if a folder is given."""

    def __init__(self, folder: Path | None = None, *, durable: bool = True) -> None:
        self._durable = durable
        self.entries: list[LedgerEntry] = []
        self._last_entries: dict[str, LedgerEntry] = {}
        self._tallies: dict[str, Tally] = {}
        self._cohorts_by_question: dict[str, frozenset[str]] = {}
        self._chain_digest = LEDGER_START
        self._path = None if folder is None else folder / "ledger.jsonl"
        if self._path is not None:
            self._load_file(self._path)

    def write(self, entry: LedgerEntry) -> None:
        """Record an entry before the answer leaves."""
        if self._path is not None:
            chain = _chain_link(self._chain_digest, entry)
            self._append_line(self._path, json.dumps({**asdict(entry), "chain": chain}) + "\n")
            self._chain_digest = chain
        self._count_entry(entry)

    def last_entry(self, run: str) -> LedgerEntry | None:
        """Return the latest entry of a run."""
        return self._last_entries.get(run)

    def _append_line(self, path: Path, line: str) -> None:
        if not self.entries:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Open the file for each line: a process may serve thousands of sites, but cannot open thousands of files.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "r+") as file:
            append_line(file, line, durable=self._durable)

    def tally(self, run: str) -> Tally:
        """Return what the runs of a study have received so far; an answer repeated after a crash counts once."""
        # a coordinator chooses the names of runs, but cannot choose the study's digest in them
        study = run.partition("-")[2] or run
        if study not in self._tallies:
            self._tallies[study] = Tally(self._cohorts_by_question)
        return self._tallies[study]

    def _count_entry(self, entry: LedgerEntry) -> None:
        if entry.abstained:
            self.tally(entry.run).abstained = entry.abstained
            return
        before = self._last_entries.get(entry.run)
        if before is None or (before.step, before.call) != (entry.step, entry.call):
            self.tally(entry.run).count_entry(entry)
        self.entries.append(entry)
        self._last_entries[entry.run] = entry

    def _load_file(self, path: Path) -> None:
        """Check the chain; drop a last line that a crash left incomplete."""
        if not path.exists():
            return
        lines = path.read_text().split("\n")
        whole = lines[:-1]
        for number, line in enumerate(whole, 1):
            try:
                record = json.loads(line)
                chain = record.pop("chain")
                entry = LedgerEntry(**record)
            except (ValueError, KeyError, TypeError):
                raise DataError(
                    f"line {number} of {path} was altered; restore the ledger as the site wrote it"
                ) from None
            if _chain_link(self._chain_digest, entry) != chain:
                raise DataError(f"line {number} of {path} was altered; restore the ledger as the site wrote it")
            self._chain_digest = chain
            self._count_entry(entry)
        if lines[-1]:
            os.truncate(path, path.stat().st_size - len(lines[-1].encode()))


def _chain_link(chain: str, entry: LedgerEntry) -> str:
    return hashlib.sha256((chain + json.dumps(asdict(entry), sort_keys=True)).encode()).hexdigest()
