"""A run looked at as an adversary would: what was seen, what can be made of it, and the verdict in words."""
