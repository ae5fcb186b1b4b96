"""One class for each thing a caller may handle differently; each message names the failure and the remedy."""


class FedclustError(Exception):
    """Whatever fedclust raises on purpose."""


class StudyError(FedclustError, ValueError):
    """The study, or a parameter of an estimator, cannot be carried out as written."""


class DataError(FedclustError, ValueError):
    """A site's rows cannot be used; the text names site and column, never a value."""


class OutOfBounds(FedclustError):
    """A value lies beyond the bound under which sums are exact."""


class WireError(FedclustError):
    """Bytes that are not a well-formed message of the expected kind."""


class NotFinite(WireError):
    """A message that holds a number which is none, or endless."""


class AnswerChanged(FedclustError):
    """A site would answer one and the same question differently; a mask must not hide both answers."""


class KeysRefused(FedclustError):
    """Keys, signatures or sealed letters that are not what they should be; nothing is given out on them."""


class OverBudget(FedclustError):
    """A price that a site's privacy budget has no room for."""


class JournalError(FedclustError):
    """The journal is damaged, belongs to another study, or contradicts the run."""


class RunFailed(FedclustError):
    """The run ended without a result. Where it must be run `must_restart`, to resume it leads to the same end."""

    def __init__(self, text: str, *, must_restart: bool = False) -> None:
        super().__init__(text)
        self.must_restart = must_restart


class QuorumLost(RunFailed):
    """Too few parties answered a step. `missing` maps each silent or refusing party to its reason."""

    def __init__(self, text: str, missing: dict[str, str], *, must_restart: bool = False) -> None:
        super().__init__(text, must_restart=must_restart)
        self.missing = missing


class Waiting(FedclustError):
    """A step was asked and its answers may take days: nothing is wrong, and the run goes on when they are there."""

    def __init__(self, text: str, parties: tuple[str, ...]) -> None:
        super().__init__(text)
        self.parties = parties
