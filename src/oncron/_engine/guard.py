"""Runs with `guard="advisory"`: they execute while a lock is held that another scheduler takes as well."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from oncron import _defaults as limits
from oncron._engine.door import Door
from oncron._engine.spec import Execution, TaskSpec
from oncron._model import Definition, Outcome, OutcomeKind
from oncron._store import ReadableStore
from oncron.errors import NotSupported, StoreError, StoreUnsafe

log = logging.getLogger("oncron.run")

_UNREACHED_DELAY = 5 * limits.SECOND
"""How long a run waits that was given back because nobody could tell whether the lock is free."""


class Guards:
    """Which guards the store can keep, asked once each."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._refusals: dict[str, StoreError | None] = {}
        self._told: set[str] = set()

    async def refuse(self, definitions: Sequence[Definition]) -> None:
        """Raises NotSupported, StoreUnsafe for the first schedule whose guard would keep nobody out."""
        for definition in definitions:
            if (error := await self._refusal(definition)) is not None:
                raise type(error)(f"schedule {definition.name!r}: {error}")

    async def kept(self, definitions: Sequence[Definition]) -> list[Definition]:
        """Without those that were declared while the replica runs and whose guard is refused: the others go on."""
        found: list[Definition] = []
        for definition in definitions:
            error = await self._refusal(definition)
            if error is None:
                found.append(definition)
            elif definition.name not in self._told:
                self._told.add(definition.name)
                log.error("schedule %r is not declared: %s", definition.name, error)
        return found

    async def _refusal(self, definition: Definition) -> StoreError | None:
        guard = definition.guard
        if guard is None:
            return None
        if guard not in self._refusals:
            try:
                await self._door(lambda store: store.refuse_guard(guard))
            except (NotSupported, StoreUnsafe) as error:
                self._refusals[guard] = error
            else:
                self._refusals[guard] = None
        return self._refusals[guard]


async def under_guard(
    store: ReadableStore, execution: Execution, spec: TaskSpec, run: Callable[[], Awaitable[Outcome | None]]
) -> Outcome | None:
    """What `run()` answers, called while the lock of the schedule's name is held. If somebody else has it, the run ends
    as skipped; if it could not be asked for, it is given back. Told when it is lost: then another may have started."""
    record = execution.run
    name, entered = record.schedule or record.task, False

    def lost(why: str) -> None:
        log.warning(
            "run %s of task %r: the advisory lock of %r is lost, and another scheduler may have started (%s)",
            record.id, record.task, name, why, extra={"event": "lease.lost", "run": record.id},
        )  # fmt: skip
        if spec.on_doubt == "stop" and execution.stop_reason is None:
            execution.ask_to_stop("guard lost")

    try:
        async with store.guarded(name, lost) as granted:
            if not granted:
                return Outcome(run_id=record.id, token=record.token, kind=OutcomeKind.SKIPPED, reason=_taken(name))
            entered = True
            return await run()
    except StoreError as error:
        if entered:
            raise
        log.warning("run %s of task %r is given back, its guard cannot be asked: %s", record.id, record.task, error)
        return Outcome(
            run_id=record.id, token=record.token, kind=OutcomeKind.RELEASED, reason=str(error)[:300],
            delay=_UNREACHED_DELAY,
        )  # fmt: skip


def _taken(name: str) -> str:
    return f"guard: somebody else holds the advisory lock of {name!r}"
