"""Questions to the sites for choosing the number of clusters, and how the answers decide."""
