"""Conformance checks for authors of algorithms and engines, and engines that fail on purpose or replay a run."""

from fedclust.testing.conformance import CHECKS
from fedclust.testing.faulty_engines import Faulty, Replay

__all__ = ["CHECKS", "Faulty", "Replay"]
