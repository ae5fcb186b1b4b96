"""Sites under one name: what they hold together, how their sums are opened, and where a run is recorded."""
