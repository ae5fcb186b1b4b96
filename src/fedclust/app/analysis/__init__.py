"""Describes a fitted model so that others can judge it; a run stores the description in analysis.json."""

from fedclust.app.analysis.describe_model import ANALYSIS_FORMAT, ANALYSIS_VERSION, describe
from fedclust.app.analysis.model_facts import ModelFacts, read_model_facts
from fedclust.app.analysis.part_guard import json_values

__all__ = ["ANALYSIS_FORMAT", "ANALYSIS_VERSION", "ModelFacts", "describe", "json_values", "read_model_facts"]
