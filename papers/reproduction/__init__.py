"""The tables and figures of the five papers, computed again and set beside what was printed.

`numbers/` has the printed numbers, one file for each paper; `runs_*` the computations, whose results are kept; `paper*`
one function for each table and figure. `python -m papers.reproduction` runs them.
"""

from papers.reproduction.catalogue import EXPERIMENTS, named
from papers.reproduction.judging import judged
from papers.reproduction.published import papers

__all__ = ["EXPERIMENTS", "judged", "named", "papers"]
