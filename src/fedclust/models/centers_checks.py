"""Which initial centres, gaps and splits the parameters of a method with centres allow together."""

from __future__ import annotations

from typing import Any, Protocol

from fedclust.core.effects import ALL_PARTIES, Quorum
from fedclust.models.input_checks import is_whole_number, require

INIT_METHODS = ("k-means++", "random", "box", "party", "careful")
TREE_INITS = ("k-means++", "random")  # from totals over all rows and public draws
SPREAD_INITS = ("party", "careful")  # from points that single sites send
COLUMN_INITS = ("k-means++", "box")
MAX_INITS = 1000


class CentersParameters(Protocol):
    """The parameters that are compared with each other."""

    init: Any
    participation: float
    quorum: Quorum

    @property
    def hides_small_counts(self) -> bool:
        """Whether small sites or single rows are left out as in the papers."""


def check_candidates(init: Any, n_init: Any, split: str) -> None:
    """Refuse an unknown start, and a number of candidates where only one set of initial centres is possible."""
    named = isinstance(init, str)
    require(
        not named or init in INIT_METHODS,
        f"init is '{init}'; choose one of {', '.join(INIT_METHODS)}, or give centres",
    )
    several = is_whole_number(n_init) and 1 <= int(n_init) <= MAX_INITS
    require(
        n_init == "auto" or several,
        f"n_init is {n_init!r}; it must be 'auto' or a whole number from 1 to {MAX_INITS}",
    )
    drawn = named and (init not in SPREAD_INITS if split == "rows" else init == "k-means++")
    require(
        n_init in ("auto", 1) or drawn,
        f"n_init is {n_init}, but only init='k-means++' and, on a row split, 'random' and 'box' have several "
        "candidates; set n_init to 'auto'",
    )


def check_gaps(model: CentersParameters) -> None:
    """Refuse what needs whole rows, for a study that uses incomplete ones."""
    require(
        not (isinstance(model.init, str) and model.init == "party"),
        "init='party' needs rows without missing values; with missing='partial' use init='k-means++' or init='box'",
    )
    require(
        not model.hides_small_counts,
        "singletons='paper' and small_sites='paper' need rows without missing values; set missing to 'drop'",
    )


def check_column_split(model: CentersParameters, missing: str) -> None:
    """Refuse what works on row splits only."""
    require(
        not model.hides_small_counts,
        "singletons='paper' and small_sites='paper' work on row splits only; set both to None",
    )
    require(missing == "refuse", "a column split cannot have missing values; set missing to 'refuse'")
    require(
        not isinstance(model.init, str) or model.init in COLUMN_INITS,
        f"init='{model.init}' works on row splits only; for a column split use 'k-means++' or 'box'",
    )
    require(model.quorum == ALL_PARTIES, "a column split needs all sites in every step; set quorum to 'all'")
    require(model.participation == 1, "a column split needs all sites in every round; set participation to 1")
