"""Data sets for trying fedclust: the papers' data sets, synthetic data, and ways to split data among sites."""

from fedclust.datasets.drawn import SyntheticData, Truth, g2, mixture, motivational
from fedclust.datasets.loading import Dataset, load
from fedclust.datasets.splitting import split, split_columns, split_indices

__all__ = [
    "Dataset",
    "SyntheticData",
    "Truth",
    "g2",
    "load",
    "mixture",
    "motivational",
    "split",
    "split_columns",
    "split_indices",
]
