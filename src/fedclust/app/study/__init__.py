"""The study file: all that a clustering of several sites needs to know, read once, or refused in one sentence."""

from fedclust.app.study.opening_checks import Opened, opened
from fedclust.app.study.study_parts import Choice, Cluster, Site, Study
from fedclust.app.study.study_reader import parse_study, read_study

__all__ = ["Choice", "Cluster", "Opened", "Site", "Study", "opened", "parse_study", "read_study"]
