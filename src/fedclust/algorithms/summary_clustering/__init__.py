"""Clustering of k-anonymous summaries: sites send means of rows once, the coordinator finds communities among them."""
