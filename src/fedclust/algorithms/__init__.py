"""The algorithms, one file or folder each: questions, a site's answers, and the coordinator's script."""
