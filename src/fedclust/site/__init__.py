"""What a site holds and runs: its rows, its policy, and the gate that every answer must pass."""
