"""Ratios against peers, taken side by side in one process: on a shared machine only ratios mean anything."""
