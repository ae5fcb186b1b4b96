"""The tables and figures of the five papers, computed again and set beside what was printed.

`numbers/` has the printed numbers, one file for each paper; `runs_*` the computations, whose results are kept; `paper*`
one function for each table and figure. `fedclust reproduce` runs them.
"""

from fedclust.reproduce.catalogue import EXPERIMENTS, named
from fedclust.reproduce.judging import judged
from fedclust.reproduce.published import papers

__all__ = ["EXPERIMENTS", "judged", "named", "papers"]
