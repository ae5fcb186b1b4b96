"""Steps that several algorithms share: initial centres, weighted k-means, and what happens to empty clusters."""
