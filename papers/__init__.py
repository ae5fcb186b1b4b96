"""The five papers reproduced: published numbers, experiments, and the page that compares them."""
