"""The command line: one module per group of verbs, each of which imports what it needs only when it runs."""
