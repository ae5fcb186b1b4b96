"""The exceptions of fedclust: one class for each failure that a caller may handle differently."""


class FedclustError(Exception):
    """The base of every error that fedclust raises on purpose."""


class StudyError(FedclustError, ValueError):
    """The study, or a parameter of an estimator, cannot be carried out as written."""


class RuleRefusal(StudyError):
    """A site's own rules refuse a study before any question; of this error only `code` leaves the site."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class DataError(FedclustError, ValueError):
    """A site's rows cannot be used; the message names the site and the column, never a value."""


class OutOfBounds(FedclustError):
    """A value exceeds the bound within which sums are exact."""


class WireError(FedclustError):
    """The bytes are not a well-formed message of the expected type."""


class NotFinite(WireError):
    """A message holds a number that is NaN or infinite."""


class NotAsDeclared(Exception):
    """An answer of another package does not hold what its type declares."""


class AnswerChanged(FedclustError):
    """A site would answer the same question differently; one mask must not hide two answers."""


class KeysRefused(FedclustError):
    """Keys, signatures or sealed messages are wrong, so the site releases nothing."""


class OverBudget(FedclustError):
    """A price exceeds what is left of a site's privacy budget."""


class JournalError(FedclustError):
    """The journal is damaged, belongs to another study, or contradicts the run."""


class RunFailed(FedclustError):
    """The run ended without a result. If `must_restart` is true, resuming it would fail in the same way."""

    def __init__(self, text: str, *, must_restart: bool = False) -> None:
        super().__init__(text)
        self.must_restart = must_restart


class QuorumLost(RunFailed):
    """Too few parties answered a step. `missing` maps each silent or refusing party to its reason."""

    def __init__(self, text: str, missing: dict[str, str], *, must_restart: bool = False) -> None:
        super().__init__(text, must_restart=must_restart)
        self.missing = missing


class Waiting(FedclustError):
    """A step is waiting for answers that may take days. Nothing is wrong, and the run resumes when they arrive."""

    def __init__(self, text: str, parties: tuple[str, ...]) -> None:
        super().__init__(text)
        self.parties = parties
