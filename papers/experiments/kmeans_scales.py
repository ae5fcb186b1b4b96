"""This experiment compares k-means of pooled rows that are unscaled, scaled by range, or scaled by deviation.

    python -m papers.experiments.kmeans_scales

The target for the default of SummaryClustering was k-means of pooled rows with the known number of classes: .363 in ARI
and .397 in AMI, means over thirteen sets, and .372 and .405 with columns scaled to [0, 1]. This script prints the
result of each scaling on the tables with classes of papers 0 and 3, on all their rows.
For phoneme it uses paper 3's own file,
and of the S-sets the first. Set FEDCLUST_DATA.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import fedclust as fc

SETS = (
    "hill_valley",
    "magic_telescope",
    "mozilla4",
    "optdigits",
    "ozone_8hr",
    "pendigits",
    "phoneme_openml",
    "rice",
    "s_set1",
    "satimage",
    "skin_segmentation",
    "waveform",
    "xclara",
)
SCALES = {
    "as they are": np.asarray,
    "by ranges": lambda X: MinMaxScaler().fit_transform(X),
    "by deviations": lambda X: StandardScaler().fit_transform(X),
}
SEEDS = 3


def main() -> None:
    found: dict[str, list[list[float]]] = {name: [] for name in SCALES}
    for name in SETS:
        data = fc.datasets.load(name)
        for how, scaled in SCALES.items():
            X, k = scaled(data.X), len(np.unique(data.y))
            runs = [KMeans(k, n_init=10, random_state=seed).fit_predict(X) for seed in range(SEEDS)]
            ari = np.mean([adjusted_rand_score(data.y, labels) for labels in runs])
            ami = np.mean([adjusted_mutual_info_score(data.y, labels) for labels in runs])
            found[how].append([float(ari), float(ami)])
            print(f"{name:18} {how:14} ARI {ari:.4f}  AMI {ami:.4f}", flush=True)
    for how, values in found.items():
        ari, ami = np.mean(values, axis=0)
        print(f"{f'mean of {len(SETS)}':18} {how:14} ARI {ari:.4f}  AMI {ami:.4f}")


if __name__ == "__main__":
    main()
