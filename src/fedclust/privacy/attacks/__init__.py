"""The attacks that published protocols fall to, as functions of what an observer saw; see docs/attacks.md.

a and a3  `differencing`   b  `fuzzy`       d  `cohorts`                          a3 at a site  `broadcasts`
a2        `singletons`     c  `unfolding`   e  `shown_points`, `remainders`
"""

from fedclust.privacy.attacks.cohorts import cohorts, told_apart
from fedclust.privacy.attacks.differencing import differencing
from fedclust.privacy.attacks.fuzzy_sums import fuzzy
from fedclust.privacy.attacks.scoring import Score, score
from fedclust.privacy.attacks.sent_centers import broadcasts
from fedclust.privacy.attacks.shown_points import remainders, shown_points
from fedclust.privacy.attacks.singletons import singletons
from fedclust.privacy.attacks.transcript import Found, Seen
from fedclust.privacy.attacks.unfolding import completed, unfold, unfolding

__all__ = [
    "Found",
    "Score",
    "Seen",
    "broadcasts",
    "cohorts",
    "completed",
    "differencing",
    "fuzzy",
    "remainders",
    "score",
    "shown_points",
    "singletons",
    "told_apart",
    "unfold",
    "unfolding",
]
