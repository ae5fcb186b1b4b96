"""Longer experiments: each module prints or writes figures that a page of the documentation shows."""
