"""Real federations on one machine, and what can go wrong with them on purpose."""
