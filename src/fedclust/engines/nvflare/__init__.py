"""Federations over NVIDIA FLARE: jobs, start-up kits and the processes at both ends."""
