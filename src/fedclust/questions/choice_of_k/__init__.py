"""What the sites are asked when the number of clusters is chosen, and how the answers decide."""
