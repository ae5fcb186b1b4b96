"""This benchmark clusters a Parquet file larger than the memory limit and measures the memory beyond the imports."""

from __future__ import annotations

import json as text
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import timing

WORK = """
import json, resource, sys, time
import numpy as np
import fedclust as fc
import pyarrow.parquet, sklearn.cluster
fc.FuzzyCMeans(2, init=[[0.0], [1.0]], max_iter=1).fit(np.arange(8.0)[:, None])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
fed = fc.Federation.local({"here": sys.argv[1]})
model = fc.FuzzyCMeans(int(sys.argv[2]), tol=None, max_iter=int(sys.argv[3])).fit(fed)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"mb": (after - before) / 1024, "seconds": time.perf_counter() - begin, "rounds": model.n_iter_}))
"""


def main(*, json: bool, rows: int = 10_000_000, width: int = 16, k: int = 10, rounds: int = 3) -> int:
    """Write the file, cluster it in a separate process, and print the peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.parquet"
        _write(path, rows, width)
        # A process inherits its parent's high-water mark through fork, so the measured process is started without fork.
        ran = subprocess.run(  # noqa: S603 our own interpreter
            [sys.executable, "-c", WORK, str(path), str(k), str(rounds)], capture_output=True, text=True, check=True
        )
        row: dict[str, Any] = {"rows": rows, "columns": width, "clusters": k, **text.loads(ran.stdout)}
    row["limit"] = 300
    row["missed"] = [f"peak memory is {row['mb']:.0f} MB, at most 300 MB allowed"] if row["mb"] > 300 else []
    return timing.show({"machine": timing.machine(), **row}, [row], as_json=json)


def _write(path: Path, rows: int, width: int, chunk: int = 250_000) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    schema = pa.schema([(f"c{i}", pa.float64()) for i in range(width)])
    with pq.ParquetWriter(path, schema) as writer:
        for at in range(0, rows, chunk):
            block = rng.normal(size=(width, min(chunk, rows - at))) + rng.integers(10) * 2
            writer.write_table(pa.table(list(block), schema=schema))
