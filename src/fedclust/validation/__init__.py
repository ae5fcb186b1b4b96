"""How good a clustering is, from sums alone."""
