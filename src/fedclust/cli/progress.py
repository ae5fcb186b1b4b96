"""The progress display of a run: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

LINE_INTERVAL_SECONDS = 2.0  # between lines, if there is no terminal
BAR_INTERVAL_SECONDS = 0.1  # between two updates of the bar
ESTIMATE_ROUNDS = 12  # rounds used for an estimate


class Progress:
    """Shows the progress of a run; without `tol`, only `max_iter` ends it; `choosing` means several fits in a row."""

    def __init__(
        self,
        *,
        tol: float | None,
        max_iter: int,
        choosing: bool = False,
        stream: TextIO | None = None,
        is_silent: bool = False,
    ) -> None:
        self.round = 0
        self.fit = 1
        self.choosing = choosing
        self._tol, self._max = tol, max_iter
        self._stream = sys.stderr if stream is None else stream
        self.has_bar = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.is_silent = is_silent
        self._began = self._last_round_time = time.monotonic()
        self._last_shown = -math.inf
        self._recent_rounds: deque[tuple[float, float]] = deque(
            maxlen=ESTIMATE_ROUNDS
        )  # (seconds, shift) of each round
        self._shift_text = ""

    def __call__(self, facts: Mapping[str, Any]) -> None:
        """Record a round; a method may report neither the round's number nor the shift."""
        now = time.monotonic()
        number, shift = int(facts.get("round", self.round + 1)), float(facts.get("shift", math.nan))
        if number <= self.round:
            self.fit += 1
            self._recent_rounds.clear()
        self.round = number
        # The time before the first round (opening, initial centres) says nothing about later rounds.
        self._recent_rounds.append((now - self._last_round_time if self.round > 1 else math.nan, shift))
        self._last_round_time = now
        self._shift_text = "" if math.isnan(shift) else f", shift {shift:.2e}"
        if now - self._last_shown >= (BAR_INTERVAL_SECONDS if self.has_bar else LINE_INTERVAL_SECONDS):
            self._show_progress(now)

    @property
    def progress_text(self) -> str:
        """The progress in words."""
        return f"round {self.round} of fit {self.fit}" if self.choosing else f"round {self.round}"

    def show_opening(self) -> None:
        """Show that the sites' rows are being read."""
        if self.has_bar and not self.is_silent:
            self._draw_line("opening the sites")

    def end(self) -> None:
        """Print the last line, or clear the bar, because a summary follows."""
        if self.is_silent:
            return
        if self.has_bar:
            self._draw_line("")
        elif self.round and self._last_shown < self._last_round_time:
            self._show_progress(self._last_round_time)

    def rounds_left(self) -> int | None:
        """Estimate the rounds until the shift, which shrinks by a nearly constant factor, falls below tol.

        Returns None if there is no basis for an estimate.
        """
        most = self._max - self.round
        if self._tol is None:
            return most
        shifts = [shift for _, shift in self._recent_rounds]
        if len(shifts) < 4 or not min(shifts) > 0 or self._tol <= 0:
            return None
        slope = _fit_slope([math.log(shift) for shift in shifts])
        if slope >= -1e-3:
            return None
        return min(most, max(1, math.ceil((math.log(self._tol) - math.log(shifts[-1])) / slope)))

    def _show_progress(self, now: float) -> None:
        if self.is_silent:
            return
        self._last_shown = now
        if self.choosing:
            # The number of fits is unknown, so there is no bar and no estimate.
            head = (
                f"choosing k: fit {self.fit}, round {self.round}{self._shift_text}, "
                f"{_format_duration(now - self._began)}"
            )
        else:
            head = f"round {self.round} of at most {self._max}{self._shift_text}, {_format_duration(now - self._began)}"
        if not self.has_bar:
            print(head, file=self._stream)
            self._stream.flush()
            return
        if self.choosing:
            self._draw_line(head)
            return
        left, paces = self.rounds_left(), [seconds for seconds, _ in self._recent_rounds if seconds >= 0]
        pace = sum(paces) / len(paces) if paces else math.nan
        if not paces:
            until = ""
        elif left is None:
            until = f", at most {_format_duration(pace * (self._max - self.round))} left"
        else:
            until = f", about {_format_duration(pace * left)} left"
        share = self.round / (self.round + (self._max - self.round if left is None else left))
        head, tail = (
            f"round {self.round}/{self._max} ",
            f" {self._shift_text.removeprefix(', ')}  {_format_duration(now - self._began)}{until}",
        )
        room = shutil.get_terminal_size().columns - len(head) - len(tail) - 1
        self._draw_line(head + self._bar_text(share, min(room, 30)) + tail)

    def _bar_text(self, share: float, width: int) -> str:
        if width < 5:
            return ""
        full, empty = ("█", "░") if "utf" in (self._stream.encoding or "").lower() else ("#", "-")
        done = round(share * width)
        return full * done + empty * (width - done)

    def _draw_line(self, text: str) -> None:
        print(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", file=self._stream, flush=True)


def _fit_slope(values: list[float]) -> float:
    """Fit a line by least squares to equally spaced points and return its slope."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    return sum((i - middle) * (v - mean) for i, v in enumerate(values)) / sum(
        (i - middle) ** 2 for i in range(len(values))
    )


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
