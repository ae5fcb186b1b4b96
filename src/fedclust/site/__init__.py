"""A party's own side: its rows, its policy, and the one door through which answers leave."""
