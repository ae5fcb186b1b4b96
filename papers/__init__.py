"""The reproduction of five papers has their published numbers, our experiments, and a page that compares them."""
