"""Federations: the sites, how their sums are revealed, and where a run is recorded."""
