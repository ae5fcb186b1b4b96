"""A finished run as one page that opens anywhere: no network, no script, light and dark, on a phone and on paper.

Reads the run folder and nothing else. The same folder gives the same page, byte for byte.
"""

from fedclust.report.html_page import page
from fedclust.report.run_facts import FinishedRun, read_run

__all__ = ["FinishedRun", "page", "read_run"]
