"""What the progress display claims."""

import io

import pytest

from fedclust.cli.progress import Progress, _format_duration


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def after(shifts, **settings):
    progress = Progress(**({"tol": 1e-6, "max_iter": 100, "stream": io.StringIO()} | settings))
    for number, shift in enumerate(shifts, 1):
        progress({"round": number, "shift": shift, "objective": 1.0})
    return progress


def test_a_shift_that_shrinks_tenfold_each_round_is_extrapolated():
    assert after([1.0, 0.1, 0.01, 1e-3]).rounds_left() == 3


def test_never_more_rounds_than_may_be():
    assert after([1.0, 0.99, 0.98, 0.97], max_iter=20).rounds_left() == 16


@pytest.mark.parametrize(
    "shifts", [[1.0], [1.0, 0.1], [1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 0.1, 0.0, 0.0]]
)
def test_no_guess_without_grounds(shifts):
    assert after(shifts).rounds_left() is None


def test_without_tol_the_rounds_are_known():
    assert after([1.0, 2.0], tol=None).rounds_left() == 98


def test_lines_are_few_and_the_last_is_told():
    told = io.StringIO()
    progress = after([10.0**-i for i in range(6)], stream=told)
    progress.end()
    lines = told.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["round 1 of at most 100", "round 6 of at most 100"]


def test_silence_is_silent():
    told = io.StringIO()
    progress = Progress(tol=None, max_iter=3, stream=told)
    progress.is_silent = True
    progress({"round": 1, "shift": 1.0})
    progress.end()
    assert told.getvalue() == ""


def test_a_narrow_terminal_is_not_overrun(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    told = Terminal()
    after([10.0**-i for i in range(3)], stream=told).end()
    assert max(len(line.removesuffix("\x1b[K")) for line in told.getvalue().split("\r")) < 40


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    told = Terminal()
    after([1.0], stream=told).end()
    assert "\r" not in told.getvalue()


def test_the_clock():
    assert [_format_duration(s) for s in (0, 59.4, 60, 3601, -5)] == ["0:00", "0:59", "1:00", "1:00:01", "0:00"]
