"""For authors of algorithms and engines: the checks ours pass, and engines that fail on purpose or replay the past."""

from fedclust.testing.conformance import CHECKS
from fedclust.testing.faulty_engines import Faulty, Replay

__all__ = ["CHECKS", "Faulty", "Replay"]
