"""`ctx.walk(...)`: many items in one run, which is interrupted between two of them and goes on from there."""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from datetime import timedelta
from typing import Any, Generic, NoReturn, Self, cast

import msgspec
from typing_extensions import TypeVar

from oncron import _defaults as limits
from oncron._clock import boot_us
from oncron._engine.spec import Execution
from oncron._json import dumps, loads, type_name
from oncron._lifecycle import Interrupted
from oncron._options import shown
from oncron.errors import DefinitionError, InvalidArguments, InvalidOption

T = TypeVar("T")

Source = Sequence[T] | Callable[[Any], Iterable[tuple[Any, T]] | AsyncIterable[tuple[Any, T]]]
"""A sequence, or a function from a cursor (None at first) to (cursor, item): where to go on after that item."""

_WALKS = "$walks"
_SHAPE = "give a sequence, or a function: source(cursor) yields (cursor, item), beginning after the cursor"


class _State(msgspec.Struct):
    """How far one walk is."""

    cursor: msgspec.Raw = msgspec.Raw(b"null")
    items: int = 0
    goes: int = 0
    spent: int = 0
    """Microseconds."""
    done: bool = False
    opening: int = 1
    """Of the run when it was done: one that is opened again after its end walks anew."""


class Notes:
    """What a run keeps of itself: the cursors of its walks, and beside them what its task gives to `checkpoint`.
    While a walk is under way, both change together, between two items."""

    def __init__(self, execution: Execution, write: Callable[[str, bool], None]) -> None:
        self._write = write
        stored = execution.checkpoint or execution.run.checkpoint
        found: Any = None if stored is None else loads(stored)
        self.walks: dict[str, _State] = {}
        self.value: Any = found
        if (walks := _walks_in(found)) is not None:
            self.walks, self.value = walks, found.get("value")
        self.begun: set[str] = set()
        self.under_way: set[str] = set()
        """Walks of this go that are between two items."""

    def keep(self, value: Any) -> None:
        """What the task gives to `checkpoint`. Raises InvalidArguments."""
        self.value = loads(kept_text("checkpoint", value, limits.CHECKPOINT_BYTES))
        if not self.under_way:
            self.save(report=True)

    def save(self, *, report: bool) -> None:
        value = self.value
        if self.walks or (isinstance(value, dict) and _WALKS in value):
            text = msgspec.json.encode({_WALKS: self.walks, "value": value}).decode()
            refuse_large("the cursor of ctx.walk(), with what checkpoint() was given,", text, limits.CHECKPOINT_BYTES)
        else:
            text = dumps(value)
        self._write(text, report)


class Walk(Generic[T]):
    """The items of a source, for `for` or `async for`. An item is done when the loop comes for the next one; then
    its cursor is kept with the run.

    When the replica stops, the lease is in doubt, the run is cancelled, or `max_items` are done, the loop is left
    by Interrupted between two items: the run is given back without spending an attempt, and whoever claims it
    next goes on after the last item that was done.
    """

    def __init__(
        self,
        source: Source[T],
        execution: Execution,
        notes: Notes,
        *,
        name: str,
        every: int,
        max_items: int | None,
    ) -> None:
        if name in notes.begun:
            raise DefinitionError(
                f"ctx.walk(name={name!r}) was called before in this run, and both would share one cursor; give each "
                "walk a name= of its own"
            )
        _refuse_other_sources(source)
        notes.begun.add(name)
        self._sequence: Sequence[T] | None = None if callable(source) else source
        self._source: Callable[[Any], Any] = cast("Any", source)
        self._execution, self._notes = execution, notes
        self._name, self._every, self._most = name, every, max_items
        before = notes.walks.get(name)
        if before is None or (before.done and before.opening != execution.run.opening):
            notes.walks[name] = _State()
        self._state = notes.walks[name]
        self._resumed = self._state.goes > 0
        self._state.goes += 1
        self._here = 0
        self._given: Any = None
        """The cursor after the item that the loop has now."""
        self._has_given = False
        self._saved_at = self._since = boot_us()
        self._left: Iterator[Any] | None = None
        self._async_left: AsyncIterator[Any] | None = None

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier go of this run has walked."""
        return self._resumed

    @property
    def is_done(self) -> bool:
        """Whether the source has come to its end, in this go or an earlier one."""
        return self._state.done

    @property
    def items(self) -> int:
        """How many items are done, in all goes."""
        return self._state.items

    @property
    def goes(self) -> int:
        """How often the run was claimed to walk, this time included."""
        return self._state.goes

    @property
    def time_spent(self) -> timedelta:
        """In the loop, in all goes, up to the last item that was done."""
        return timedelta(microseconds=self._state.spent)

    def end(self) -> None:
        """The walk is over, the item in hand included: nothing is left for this go or a later one."""
        self._settle()
        self._complete()
        self._close()
        self._left, self._async_left = iter(()), None

    # --- for --------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self._between()
        self._open()
        if self._left is None:
            raise DefinitionError(f"{self!r} has an async source; write `async for item in ctx.walk(...)`")
        for pair in self._left:
            return self._give(pair)
        self._complete()
        raise StopIteration

    # --- async for --------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            self._between()
        except Interrupted:
            close: Any = getattr(self._async_left, "aclose", None)
            if close is not None:
                await close()
            raise
        self._open()
        if self._left is not None:
            for pair in self._left:
                return self._give(pair)
        if self._async_left is not None:
            async for pair in self._async_left:
                return self._give(pair)
        self._complete()
        raise StopAsyncIteration

    # --- between two items ------------------------------------------------------------

    def _between(self) -> None:
        """The item before is done. Raises Interrupted if this go ends here."""
        self._settle()
        if self._state.done or self._is_over():
            return
        if self._execution.stop.is_set():
            self._interrupt(self._execution.stop_reason or "stopped")
        if self._most is not None and self._here >= self._most:
            self._interrupt(f"{self._most} items in one go")

    def _settle(self) -> None:
        """The item that the loop has, if any, is done: its cursor is kept, with what the task gave to `checkpoint`."""
        self._notes.under_way.discard(self._name)
        if not self._has_given:
            return
        self._has_given, self._here = False, self._here + 1
        now, state = boot_us(), self._state
        state.cursor, state.items = msgspec.Raw(self._given), state.items + 1
        state.spent, self._since = state.spent + now - self._since, now
        report = now - self._saved_at >= self._every
        if report:
            self._saved_at = now
        self._notes.save(report=report)

    def _interrupt(self, why: str) -> NoReturn:
        if self._here:
            self._notes.save(report=True)
        self._close()
        raise Interrupted(f"{why}: {self._state.items} items are done")

    def _close(self) -> None:
        close: Any = getattr(self._left, "close", None)
        if close is not None:
            close()

    def _is_over(self) -> bool:
        """As far as it is known without asking for the next item."""
        return self._sequence is not None and self._position() >= len(self._sequence)

    def _complete(self) -> None:
        if not self._state.done:
            self._state.done, self._state.opening = True, self._execution.run.opening
            self._notes.save(report=False)

    # --- the source -------------------------------------------------------------------

    def _position(self) -> int:
        """In a sequence: how many of its items are done."""
        found = msgspec.json.decode(self._state.cursor)
        if found is not None and not isinstance(found, int):
            raise DefinitionError(
                f"{self!r} walks a sequence now, and an earlier go has left the cursor {found!r} of another source"
            )
        return found or 0

    def _open(self) -> None:
        """Where the last go has left off, once."""
        if self._left is not None or self._async_left is not None:
            return
        if self._state.done:
            self._left = iter(())
        elif self._sequence is not None:
            sequence, first = self._sequence, self._position()
            self._left = ((at + 1, sequence[at]) for at in range(first, len(sequence)))
        else:
            found = self._source(msgspec.json.decode(self._state.cursor))
            if isinstance(found, AsyncIterable):
                self._async_left = aiter(cast("AsyncIterable[Any]", found))
            elif isinstance(found, Iterable):
                self._left = iter(cast("Iterable[Any]", found))
            else:
                if inspect.iscoroutine(found):
                    found.close()
                raise DefinitionError(f"{self!r}: its source answered a {type_name(type(found))}; {_SHAPE}")

    def _give(self, pair: Any) -> T:
        parts = cast("tuple[Any, ...]", pair) if isinstance(pair, tuple) else ()
        if len(parts) != 2:
            raise DefinitionError(f"{self!r}: its source yields {shown(cast('object', pair))}; {_SHAPE}")
        cursor, item = parts
        try:
            text = dumps(cursor)
        except InvalidArguments as error:
            raise InvalidArguments(f"walk: the cursor {shown(cursor)}: {error}", path=error.path) from None
        self._given, self._has_given = text.encode(), True
        self._notes.under_way.add(self._name)
        return item

    def __repr__(self) -> str:
        name = f" {self._name!r}" if self._name else ""
        return f"<Walk{name} of task {self._execution.run.task!r}, {self.items} items done>"


def walked(checkpoint: str | None) -> str | None:
    """In words, how far the walks of a run are that left this checkpoint; None if it has none."""
    found: Any = None if checkpoint is None else loads(checkpoint)
    states = _walks_in(found)
    if states is None:
        return None
    return "; ".join(
        (f"{name}: " if name else "")
        + f"{state.items} item{'s' * (state.items != 1)} in {state.goes} go{'es' * (state.goes != 1)}"
        + (", all of them" if state.done else "")
        for name, state in states.items()
    )


def _walks_in(kept: Any) -> dict[str, _State] | None:
    """Of what a run keeps; None if that is the task's own value alone."""
    if not isinstance(kept, dict) or _WALKS not in kept:
        return None
    return msgspec.json.decode(dumps(cast("dict[str, Any]", kept)[_WALKS]), type=dict[str, _State])


def _refuse_other_sources(source: Any) -> None:
    if isinstance(source, str | bytes | bytearray) or not (isinstance(source, Sequence) or callable(source)):
        kind = type(cast("object", source))
        more = ": an iterator cannot begin in the middle" if isinstance(source, Iterator | AsyncIterator) else ""
        raise InvalidOption(f"ctx.walk() of a {type_name(kind)}{more}; {_SHAPE}")


def kept_text(what: str, value: Any, most: int) -> str:
    """The JSON that travels with the heartbeat. Raises InvalidArguments for what is none, or more than `most` bytes."""
    try:
        text = dumps(value)
    except InvalidArguments as error:
        raise InvalidArguments(f"{what}: {error}", path=error.path) from None
    refuse_large(what, text, most)
    return text


def refuse_large(what: str, text: str, most: int) -> None:
    size = len(text.encode())
    if size > most:
        raise InvalidArguments(
            f"{what} takes {size:,} bytes of JSON, more than {most:,}: it travels with the heartbeat; "
            "store the data elsewhere and give its key"
        )
