"""Examines a run as an adversary would: what each participant saw, what follows from it, and a verdict in words."""
