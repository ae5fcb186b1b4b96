"""Each module here is a longer experiment that prints or writes figures for a page of the documentation."""
