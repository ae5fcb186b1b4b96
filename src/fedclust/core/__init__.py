"""The layer that all others build on: exact numbers, messages, effects, and the loop that carries out a protocol."""
