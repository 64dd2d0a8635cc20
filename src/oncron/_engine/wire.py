"""What a replica and its worker processes say to each other: one JSON object a line, over a socket pair.

Nothing is pickled: arguments, results, progress and checkpoints are the JSON texts that the
store has, an error is its text and the names of its kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from oncron._engine.logform import LogForm
from oncron._lifecycle import GiveUp, Interrupted, RetryIn, Skip, cut, error_text, interruption, said, wanted_delay
from oncron._model import NewRun, RunRecord

_SAID_BYTES = 2000
_MAIN = "__main__"


class Target(msgspec.Struct, frozen=True):
    """Where another process finds a task's function: `module` is imported, `name` looked up in it.

    For a function of the script that was started, `module` is "__main__" and one of `main_path`
    and `main_module` says what to run under another name than that."""

    task: str
    module: str
    name: str
    main_path: str | None = None
    main_module: str | None = None


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """A line."""


# --- to the process ---------------------------------------------------------------------------


class Prepare(Message, frozen=True, kw_only=True):
    """First of all: look for modules where the replica does, and import what will be needed."""

    path: tuple[str, ...]
    argv: tuple[str, ...]
    targets: tuple[Target, ...]
    log_form: LogForm | None = None


class Begin(Message, frozen=True, kw_only=True):
    target: Target
    run: RunRecord
    claimed_at: int
    store_minus_boot: int
    """What the store's clock is ahead of this machine's boot clock."""
    trusted_until: int | None = None
    """See Trust; None: the run goes on whatever becomes of the lease."""
    managers: int = 0
    """How many context managers are around the function, which the process has to find with it."""


class Stop(Message, frozen=True, kw_only=True):
    """`ctx.stopping`. With `cancel` a coroutine is cancelled."""

    cancel: bool = False


class Trust(Message, frozen=True, kw_only=True):
    """The lease holds until then (boot clock, which all processes of a machine share): a process whose
    replica was stopped or suspended lets go by itself."""

    until: int


# --- from the process -------------------------------------------------------------------------


class Started(Message, frozen=True, kw_only=True):
    """The function is entered now. `deadline` is store time."""

    deadline: int | None = None


class Said(Message, frozen=True, kw_only=True):
    """The newest progress, checkpoint and lines; None for no news."""

    progress: str | None = None
    checkpoint: str | None = None
    log: str | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception without the exception."""

    text: str
    """With its traceback."""
    name: str
    said: str
    kinds: tuple[str, ...]
    """The names of its classes, itself first: what `retry_on` is judged by."""
    control: str | None = None
    """"Skip", "GiveUp", "Interrupted" or "RetryIn", if it is one."""
    delay: int = 0
    spend_attempt: bool = True

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        control, delay, spend = None, 0, True
        if isinstance(error, RetryIn):
            try:
                control, delay, spend = "RetryIn", wanted_delay(error), bool(error.spend_attempt)
            except (TypeError, ValueError, OverflowError) as wrong:
                return cls.of(wrong)
        elif (interrupted := interruption(error)) is not None:
            control, error = "Interrupted", interrupted
        elif isinstance(error, GiveUp | Skip):
            control = "GiveUp" if isinstance(error, GiveUp) else "Skip"
        return cls(
            text=error_text(error),
            name=type(error).__name__,
            said=_said(error.reason if isinstance(error, GiveUp | Skip | Interrupted) else error),
            kinds=tuple(kind_name(kind) for kind in type(error).__mro__),
            control=control,
            delay=delay,
            spend_attempt=spend,
        )


class Ended(Message, frozen=True, kw_only=True):
    """The function returned or raised, or could not be called: then it was never `Started`."""

    result: str | None = None
    failure: Failure | None = None
    misfit: str | None = None
    """Why the stored arguments do not fit the code that the process has."""
    enqueue: tuple[NewRun, ...] = ()


class LetGo(Message, frozen=True, kw_only=True):
    """The lease was not renewed in time: the process ends itself, now."""


ToProcess = Prepare | Begin | Stop | Trust
FromProcess = Started | Said | Ended | LetGo


def line(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class Lines:
    """Bytes as they come, lines as they are complete."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._rest += data
        *whole, rest = self._rest.split(b"\n") if b"\n" in data else [self._rest]
        self._rest = rest
        return iter([bytes(each) for each in whole])


def kind_name(kind: type) -> str:
    """A class by the place where it is defined: the same text in every process."""
    module = _MAIN if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _said(value: object) -> str:
    return cut(said(value).encode("utf-8", "replace").decode(), _SAID_BYTES)
