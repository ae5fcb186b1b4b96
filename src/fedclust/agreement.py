"""How far two clusterings agree."""
