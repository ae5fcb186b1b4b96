"""Methods that a third party adds to fedclust."""
