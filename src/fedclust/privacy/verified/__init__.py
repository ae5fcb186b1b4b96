"""Verified runs: each site replays the study's script, and sums are proved by tags that only sites can make."""
