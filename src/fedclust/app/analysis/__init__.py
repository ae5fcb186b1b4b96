"""A fitted model described so that others can judge it; a run writes it down as analysis.json."""

from fedclust.app.analysis.describe_model import ANALYSIS_FORMAT, ANALYSIS_VERSION, describe

__all__ = ["ANALYSIS_FORMAT", "ANALYSIS_VERSION", "describe"]
