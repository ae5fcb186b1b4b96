"""The study file: everything that a clustering of several sites needs to know, read once or refused in one sentence."""

from fedclust.app.study.opening_checks import OpenStudy, open_study
from fedclust.app.study.study_parts import ClusterSettings, KSearch, Study, StudySite
from fedclust.app.study.study_reader import parse_study, read_study

__all__ = ["ClusterSettings", "KSearch", "OpenStudy", "Study", "StudySite", "open_study", "parse_study", "read_study"]
