"""One file per algorithm: what it asks, what a site answers, and the script between; neither sites nor engines."""
