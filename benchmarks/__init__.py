"""The benchmarks measure ratios against peers in one process, because only ratios are meaningful on a busy machine."""
