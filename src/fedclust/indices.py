"""Validation indices of a fitted model over a federation."""
