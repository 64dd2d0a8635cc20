"""Every error that crosses oncron's border.

::

    OncronError
    ├── DefinitionError                 the programmer, at definition
    │   ├── InvalidTrigger              expression, field, reason, mend
    │   ├── InvalidTask                 signature, name, annotations
    │   ├── InvalidArguments            path into the arguments
    │   ├── DuplicateName               both places
    │   └── InvalidOption
    ├── StoreError                      the operator
    │   ├── StoreUnavailable            may be repeated
    │   ├── StoreUnsafe                 read-only, second host, pooler
    │   ├── SchemaOutdated · SchemaTooNew
    │   ├── NotSupported                this store cannot do it
    │   └── WrongKey                    encrypted with a key that is not given
    ├── NotFound                        schedule, run, task, queue
    ├── Stopped · AlreadyRunning
    ├── Occupied                        .run
    ├── LeaseLost                       the run is no longer yours
    ├── LimitExceeded                   .retry_in
    └── RunFailed                       .run

The name says who is to blame; the message says what is wrong, which thing it is
about, and what to do. No driver's exception crosses the border.
"""

from __future__ import annotations

from typing import Any


class OncronError(Exception):
    """The root of the tree; never raised itself."""


class DefinitionError(OncronError):
    """A mistake in the program, found before anything was written."""


class InvalidTrigger(DefinitionError, ValueError):
    """A schedule expression or trigger argument that means nothing.

    `expression` is the text as given, `field` the part that is wrong (or ""),
    `reason` what is wrong with it, `mend` what to write instead.
    """

    def __init__(self, reason: str, *, expression: object = "", field: str = "", mend: str = "") -> None:
        self.expression, self.field, self.reason, self.mend = expression, field, reason, mend
        shown = repr(expression[:81] if isinstance(expression, str) else expression)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        where = f" ({field})" if field else ""
        super().__init__(f"{shown}{where}: {reason}" + (f"; {mend}" if mend else ""))


class InvalidTask(DefinitionError, ValueError):
    """A function that cannot be a task: its signature, its name or its annotations."""


class InvalidArguments(DefinitionError, ValueError):
    """Arguments that do not fit the task's signature, or are not JSON.

    `path` leads to the value that does not fit, `$.items[3].price` for instance.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        self.path = path
        super().__init__(message)


class DuplicateName(DefinitionError, ValueError):
    """One name for two things; the message names both places."""


class InvalidOption(DefinitionError, ValueError):
    """An option with a value it cannot have."""


class StoreError(OncronError):
    """Something the operator of the store has to look at."""


class StoreUnavailable(StoreError):
    """The store did not answer in time or refused the connection. May be repeated:
    every write carries an id, so a repetition of one that did happen is harmless."""


class StoreUnsafe(StoreError):
    """The store answers but could lose or double work as it is set up."""


class SchemaOutdated(StoreError):
    """The store's schema is older than this release: run `oncron migrate`."""


class SchemaTooNew(StoreError):
    """The store's schema is of a newer major release than this code: upgrade oncron."""


class NotSupported(StoreError):
    """This kind of store cannot do what was asked."""


class WrongKey(StoreError):
    """Something is stored encrypted, and no key of `Oncron(encryption=...)` opens it: it is missing, or differs."""


class NotFound(OncronError, LookupError):
    """No schedule, run, task or queue of that name."""


class Stopped(OncronError, RuntimeError):
    """The app is stopped: it takes no declarations and no work until it is started again."""


class AlreadyRunning(OncronError, RuntimeError):
    """`start()` while running."""


class Occupied(OncronError):
    """Another run has the place; `run` is the one that has it."""

    def __init__(self, message: str, run: Any = None) -> None:
        self.run = run
        super().__init__(message)


class LeaseLost(OncronError):
    """The run is no longer this worker's; whatever it writes now is refused."""


class LimitExceeded(OncronError):
    """A rate limit refused; `retry_in` is the wait in seconds."""

    def __init__(self, message: str, *, retry_in: float) -> None:
        self.retry_in = retry_in
        super().__init__(message)


class RunFailed(OncronError):
    """Raised by `Run.wait()` for a run that did not end as succeeded; `run` tells how it did."""

    def __init__(self, message: str, run: Any = None) -> None:
        self.run = run
        super().__init__(message)
