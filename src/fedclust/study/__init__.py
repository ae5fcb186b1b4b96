"""The study file: all that a clustering of several sites needs to know, read once, or refused in one sentence."""

from fedclust.study.opening import Opened, opened
from fedclust.study.parts import Choice, Cluster, Site, Study
from fedclust.study.reading import parse_study, read_study

__all__ = ["Choice", "Cluster", "Opened", "Site", "Study", "opened", "parse_study", "read_study"]
