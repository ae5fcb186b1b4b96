"""What a site lets happen to its rows. The site owns it; a coordinator can neither read nor loosen it."""

from __future__ import annotations

from dataclasses import dataclass

from fedclust.core.errors import StudyError


@dataclass(frozen=True)
class Policy:
    """Rules a gate enforces. `handlers` None allows every question this version knows, but those `withheld`."""

    name: str
    min_rows: int = 0
    handlers: frozenset[str] | None = None
    withheld: frozenset[str] = frozenset({"vertical.reveal"})  # a site keeps its slice of centres to itself

    def allows(self, handler: str) -> bool:
        """Whether a question may be asked at all."""
        return handler not in self.withheld and (self.handlers is None or handler in self.handlers)


PROFILES = {
    "none": Policy("none", withheld=frozenset()),  # all rows are in one process
    "datashield": Policy("datashield", min_rows=3),
    "standard": Policy("standard", min_rows=5),
    "tre": Policy("tre", min_rows=7),
    "nhs": Policy("nhs", min_rows=10),
    "cms": Policy("cms", min_rows=11),
}


def profile(name: str | Policy) -> Policy:
    """A policy by its name."""
    if isinstance(name, Policy):
        return name
    if name not in PROFILES:
        raise StudyError(f"there is no policy '{name}'; choose one of {', '.join(PROFILES)}")
    return PROFILES[name]
