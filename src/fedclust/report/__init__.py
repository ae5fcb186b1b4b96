"""The HTML report of a finished run: one page that needs no network and no scripts.

It reads the run folder and nothing else. The same folder gives the same page, byte for byte.
"""

from fedclust.report.html_page import page
from fedclust.report.run_facts import FinishedRun, read_run

__all__ = ["FinishedRun", "page", "read_run"]
