"""The reproduction computes the tables and figures of five papers again and compares them with the printed ones.

`numbers/` has the printed numbers, one file for each paper. `runs_*` has the computations, whose results are stored.
`paper*` has one function for each table and figure. `python -m papers.reproduction` runs them.
"""

from papers.reproduction.catalogue import EXPERIMENTS, named
from papers.reproduction.judging import judged
from papers.reproduction.published import papers

__all__ = ["EXPERIMENTS", "judged", "named", "papers"]
