"""The command line: one module per family of verbs, each imported when it is asked for."""
