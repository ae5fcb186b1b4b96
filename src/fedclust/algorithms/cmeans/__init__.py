"""Lossless k-means and fuzzy c-means (papers 0 and 1): row splits, column splits, and rows with missing values."""
