"""Examines a run as an adversary would: what each participant saw, what can be derived from it, and a verdict in words."""
