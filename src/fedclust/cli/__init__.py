"""The command line: one module per family of verbs; what a verb needs is imported when it is asked for."""
