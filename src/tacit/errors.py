"""Every error tacit raises, in one tree::

    TacitError
    ├── InvalidValue          a parameter is out of range            (also a ValueError)
    │   └── NotIsolated       model or loss mix examples, or keep something of them
    ├── GuaranteeVoid         a fault was found in a run, which has no guarantee since
    ├── MalformedEvent        text that is not an event              (also a ValueError)
    ├── UnsupportedEvent      no accountant asked for can bound this event
    ├── CalibrationError      no noise parameter meets the target
    ├── BudgetExceeded        the charge would overspend; nothing was touched
    ├── MissingExtra          an optional package is not installed   (also an ImportError)
    ├── SourceMissing         no table where one was expected, or a column is absent
    ├── EngineFailed          the database engine or a solver could not do its work
    ├── ModelUnreadable       a file that is no model, was altered, or lacks its guarantee
    ├── MessageRefused        a message of a secure round that is malformed, or asks for too much
    ├── RoundAborted          too few clients answered; nothing was opened
    ├── SelfTestFailed        clipping or noise did not act as they must; nothing was released
    ├── ServiceRefused        a service does not know the caller, does not allow it, or has no such thing
    └── LedgerError           the ledger itself
        ├── LedgerMissing     no ledger where one was expected
        ├── LedgerExists      a ledger where none was expected, or with another budget
        ├── LedgerUnwritable  read-only file, missing directory, no permission
        ├── LedgerTooNew      written by a later version of tacit
        └── LedgerCorrupted   not a ledger, or its chain of hashes is broken

Each error carries the values that caused it as attributes, and its message ends with what to
do next.

Warnings are apart: :class:`NotCovered` for a score that no guarantee covers, :class:`CannotLearn` for a fit
whose noise outweighs any signal, :class:`WeakPrivacy` for an ε or δ that promises little.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetExceeded",
    "CalibrationError",
    "CannotLearn",
    "EngineFailed",
    "GuaranteeVoid",
    "InvalidValue",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerExists",
    "LedgerMissing",
    "LedgerTooNew",
    "LedgerUnwritable",
    "MalformedEvent",
    "MessageRefused",
    "MissingExtra",
    "ModelUnreadable",
    "NotCovered",
    "NotIsolated",
    "RoundAborted",
    "SelfTestFailed",
    "ServiceRefused",
    "SourceMissing",
    "TacitError",
    "UnsupportedEvent",
    "WeakPrivacy",
]


class TacitError(Exception):
    """Base of every error raised by tacit.

    ``next_step`` is the advice that closes the message; the keyword fields are kept as
    attributes so that callers need not parse text.
    """

    def __init__(self, problem: str, next_step: str = "", **fields: Any) -> None:
        self.problem = problem
        self.next_step = next_step
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(f"{problem} {next_step}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is: an error of a worker process arrives with its message and its fields."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[TacitError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> TacitError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class InvalidValue(TacitError, ValueError):
    """A parameter is outside its range. Fields: ``name``, ``value``, ``requirement``."""

    def __init__(self, name: str, value: Any, requirement: str, next_step: str = "") -> None:
        super().__init__(
            f"{name} must be {requirement}, got {value!r:.200}.",
            next_step,
            name=name,
            value=value,
            requirement=requirement,
        )


class NotIsolated(InvalidValue):
    """Model or loss let one example change another's part of the result, or keep something of it.

    Found before the step was released; a run in which it was found has no guarantee from then on.
    """


class GuaranteeVoid(TacitError):
    """The run, or one that trained this model before, has no guarantee: a fault was found in it.

    What was charged stays charged.
    """


class MalformedEvent(TacitError, ValueError):
    """Text or data that does not describe an event."""


class UnsupportedEvent(TacitError):
    """The accountant asked for cannot bound this event. Fields: ``event``, ``method``."""


class CalibrationError(TacitError):
    """No noise parameter in the searchable range meets the target."""


class BudgetExceeded(TacitError):
    """The charge would exceed the budget. It was refused before any data were touched.

    Fields: ``label``, ``budget``, ``spent``, ``would_be`` (ε spent with this charge).
    """


class MissingExtra(TacitError, ImportError):
    """An optional package is not installed. Fields: ``package``, ``extra``."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} need the package {package}, which is not installed.",
            f"Install it: pip install 'tacit[{extra}]'",
            package=package,
            extra=extra,
        )


class SourceMissing(TacitError):
    """There is no table at this place, it cannot be opened, or a declared column is absent."""


class EngineFailed(TacitError):
    """The engine could not run a query. Its own message is withheld: it may quote the data."""


class ModelUnreadable(TacitError):
    """The file is no model that can be loaded: absent, altered, cut short, too new, without guarantee."""


class MessageRefused(TacitError):
    """A message of a secure round is malformed, of another round, or asks for what must stay secret."""


class RoundAborted(TacitError):
    """Too few clients were left in a secure round; no sum was opened. What was charged stays charged."""


class SelfTestFailed(TacitError):
    """Clipping or noise did not act as they must, found before anything was released."""


class ServiceRefused(TacitError):
    """A service refused a request. Field: ``status``, the code of the answer, as HTTP has it.

    401 the caller is not known, 403 its role or grant does not allow it, 404 there is no such thing for this
    caller, 409 it contradicts what was asked before or is still being worked on, 413 it is too large, 422
    it makes no sense, 429 there were too many of the kind, 503 the service cannot do it now.
    """

    status: int


class LedgerError(TacitError):
    """Base of the errors about a ledger's storage. Field: ``location``."""


class LedgerMissing(LedgerError):
    """There is no ledger at this location."""


class LedgerExists(LedgerError):
    """There is a ledger already, and it does not agree with what was asked."""


class LedgerUnwritable(LedgerError):
    """The ledger cannot be written: a read-only file, a missing directory, no permission."""


class LedgerTooNew(LedgerError):
    """The ledger was written by a later version of tacit."""


class LedgerCorrupted(LedgerError):
    """The file is not a ledger, or its hash chain does not hold."""


class NotCovered(UserWarning):
    """A number was computed from rows without noise and without a charge: no guarantee covers it."""


class CannotLearn(UserWarning):
    """By public facts alone, the noise of a fit outweighs the largest signal that its rows could give."""


class WeakPrivacy(UserWarning):
    """An ε above 10 or a δ above 1/population was asked for: what is promised then protects hardly "
    "anybody."""
