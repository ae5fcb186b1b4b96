"""Attacks that break published protocols, as functions of what an observer saw; see docs/attacks.md.

| attack | function |
|---|---|
| a, a3 | `attack_by_differencing` |
| a2 | `attack_singletons` |
| a3 at a site | `attack_sent_centers` |
| b | `attack_fuzzy_sums` |
| c | `attack_by_unfolding` |
| d | `attack_by_cohorts` |
| e | `attack_shown_points`, `attack_remainders` |
"""

from fedclust.privacy.attacks.cohorts import attack_by_cohorts, isolate_site_sums
from fedclust.privacy.attacks.differencing import attack_by_differencing
from fedclust.privacy.attacks.fuzzy_sums import attack_fuzzy_sums
from fedclust.privacy.attacks.scoring import Score, score
from fedclust.privacy.attacks.sent_centers import attack_sent_centers
from fedclust.privacy.attacks.shown_points import attack_remainders, attack_shown_points
from fedclust.privacy.attacks.singletons import attack_singletons
from fedclust.privacy.attacks.transcript import Observation, RecoveredPoint, Roles
from fedclust.privacy.attacks.unfolding import attack_by_unfolding, complete_rows, unfold

__all__ = [
    "Observation",
    "RecoveredPoint",
    "Roles",
    "Score",
    "attack_by_cohorts",
    "attack_by_differencing",
    "attack_by_unfolding",
    "attack_fuzzy_sums",
    "attack_remainders",
    "attack_sent_centers",
    "attack_shown_points",
    "attack_singletons",
    "complete_rows",
    "isolate_site_sums",
    "score",
    "unfold",
]
