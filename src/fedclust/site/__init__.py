"""A party's own side: its rows, its policy, and the gate that every answer must pass."""
