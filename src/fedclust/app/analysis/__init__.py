"""Describes a fitted model so that others can judge it; a run stores the description in analysis.json."""

from fedclust.app.analysis.describe_model import ANALYSIS_FORMAT, ANALYSIS_VERSION, describe

__all__ = ["ANALYSIS_FORMAT", "ANALYSIS_VERSION", "describe"]
