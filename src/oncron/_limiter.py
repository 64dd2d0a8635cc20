"""`app.limiter()`: asks the store before something is done, and waits, refuses or skips as its policy says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, cast

from oncron._clock import SECOND, boot_us
from oncron._groups import LimitRule, Take, Taken
from oncron._hosting import refuse_on_loop
from oncron._lifecycle import RetryIn, Skip
from oncron._lock import Lock, LockDesk
from oncron._model import new_id
from oncron._store import ReadableStore
from oncron.errors import DefinitionError, InvalidOption, LimitExceeded, Occupied
from oncron.limits import Rule

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Policy = Literal["raise", "wait", "skip"]

_SETTLED_WITHIN = 3600 * SECOND
"""How long after a take its true cost may still be told."""


class LimiterDesk(LockDesk, Protocol):
    """What limiters need from the app."""

    async def ask(self, work: Callable[[ReadableStore], Awaitable[T]]) -> T:
        """Do `work` with the store. It must be repeatable (G7)."""
        ...

    async def sleep(self, duration: int) -> None:
        """As long as it takes until the store's clock is so many microseconds further, or about that long."""
        ...


@dataclass(eq=False)
class _Block:
    """A limiter's block that was entered, with its slot."""

    limiter: Limiter
    slot: Lock | None


_entered: ContextVar[tuple[_Block, ...]] = ContextVar("oncron_limiters", default=())
"""The limiters' blocks that this task or thread is in; innermost last."""


@dataclass
class Grant:
    """The answer of a limiter: true if it was granted. With `policy="skip"` it may be false."""

    granted: bool
    retry_in: float
    """Seconds until the same would be granted, if nobody else takes any; 0 when granted."""
    waited: float
    """Seconds."""
    _settle: Callable[[int], Awaitable[None]] | None = None

    def __bool__(self) -> bool:
        return self.granted

    async def settle(self, cost: int) -> None:
        """What it did cost, instead of what was taken: more or less. May be told again within an hour. Only for
        `points`; raises InvalidOption for other rules and for a cost below 0."""
        if self._settle is None:
            raise InvalidOption(
                "settle() is for a granted take of points(...); other rules have no estimate to put right"
            )
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"settle({cost!r}): give a whole number from 0")
        await self._settle(cost)


class Limiter:
    """One limit for the whole fleet: a context (sync and async), a decorator, a task's `limiter=`, and middleware.

    `policy="raise"` waits up to `wait_for` and raises LimitExceeded; `"wait"` waits as long as it takes;
    `"skip"` never waits: its grant is false, a decorated function is not called and returns None.
    """

    def __init__(
        self, desk: LimiterDesk, name: str, rule: Rule, *, policy: Policy, wait_for: int, cost: int = 1
    ) -> None:
        self._desk, self.name, self.rule = desk, name, rule
        self.policy: Policy = policy
        self._wait_for, self._cost = wait_for, cost
        self._wait = {"raise": wait_for, "wait": None, "skip": 0}[policy]
        self._blocks: dict[_Block, None] = {}
        """Those that were entered and not left, in any task or thread."""

    def __repr__(self) -> str:
        return f"<Limiter {self.name} {self.rule}>"

    def cost(self, cost: int) -> Limiter:
        """This limiter, for work that counts as `cost`. Raises InvalidOption for more than the rule ever allows."""
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"limiter {self.name!r}: cost({cost!r}); give a whole number from 0")
        if self.rule.lease_for is not None and cost != 1:
            raise InvalidOption(f"limiter {self.name!r}: a block takes one slot; cost() is for counted rules")
        if self.rule.amount is not None and cost > self.rule.amount:
            raise InvalidOption(
                f"limiter {self.name!r}: a cost of {cost} is never granted under {self.rule}; split the work"
            )
        return Limiter(self._desk, self.name, self.rule, policy=self.policy, wait_for=self._wait_for, cost=cost)

    # --- taking -------------------------------------------------------------------------

    async def __aenter__(self) -> Grant:
        """Raises LimitExceeded, StoreError."""
        grant, slot = await self._take(self._wait)
        self._note(slot)
        return grant

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        slot = self._left()
        if slot is not None:
            await slot.__aexit__(kind, error, trace)
        return False

    def __enter__(self) -> Grant:
        refuse_on_loop("with limiter:", "async with limiter:")
        grant, slot = self._take_sync()
        self._note(slot)
        return grant

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        slot = self._left()
        if slot is not None:
            slot.__exit__(kind, error, trace)
        return False

    def _note(self, slot: Lock | None) -> None:
        """A block is entered."""
        block = _Block(self, slot)
        self._blocks[block] = None
        _entered.set((*(each for each in _entered.get() if each.limiter.is_inside(each)), block))

    def is_inside(self, block: _Block) -> bool:
        """Whether that block of this limiter was entered and not left yet."""
        return block in self._blocks

    def _left(self) -> Lock | None:
        """The slot of the innermost block of this limiter's that this task or thread is in; where it is in none (a
        fixture or a stack of contexts is left elsewhere), that of the last one entered: one slot is as good as
        another. Raises DefinitionError."""
        here = [block for block in _entered.get() if block.limiter is self and block in self._blocks]
        block = here[-1] if here else next(reversed(list(self._blocks)), None)
        if block is None:
            raise DefinitionError(f"limiter {self.name!r}: its block was not entered, or was left before")
        self._blocks.pop(block, None)
        _entered.set(tuple(each for each in _entered.get() if each is not block))
        return block.slot

    def __call__(self, fn: F) -> F:
        """A decorator: each call of the function asks first."""
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def limited_async(*args: Any, **kwargs: Any) -> Any:
                async with self as grant:
                    return await fn(*args, **kwargs) if grant else None

            return cast("F", limited_async)

        @functools.wraps(fn)
        def limited(*args: Any, **kwargs: Any) -> Any:
            with self as grant:
                return fn(*args, **kwargs) if grant else None

        return cast("F", limited)

    @contextlib.asynccontextmanager
    async def at_once(self) -> AsyncGenerator[Grant]:
        """The block, or a false grant, without any waiting and whatever the policy: raises no LimitExceeded."""
        grant, slot = await self._take(0, may_raise=False)
        try:
            yield grant
        except BaseException as error:
            if slot is not None:
                await slot.__aexit__(type(error), error, error.__traceback__)
            raise
        if slot is not None:
            await slot.__aexit__(None, None, None)

    # --- looking ------------------------------------------------------------------------

    async def used(self) -> int:
        """How much counts against the rule now: takes of the window, the bucket's level rounded up, slots held.
        Raises StoreError."""
        if self.rule.counted is not None:
            rule = self.rule.counted
            return (await self._desk.ask(lambda store: store.taken(self._stored, rule))).used
        if self.rule.lease_for is None:
            return 0
        held = await self._desk.ask(lambda store: store.locks())
        return sum(lock.name == self._stored for lock in held)

    async def remaining(self) -> int | None:
        """How much would be granted now; None without a limit. Raises StoreError."""
        return None if self.rule.amount is None else max(0, self.rule.amount - await self.used())

    # --- inside -------------------------------------------------------------------------

    @property
    def _stored(self) -> str:
        """Its name in the store; no lock of a user's has a name with a line break."""
        return f"limiter\n{self.name}"

    async def _take(self, within: int | None, *, may_raise: bool = True) -> tuple[Grant, Lock | None]:
        """Raises LimitExceeded if `may_raise` and the policy does."""
        began = boot_us()
        until = None if within is None else began + within
        if self.rule.lease_for is not None:
            slot = self._slot(within)
            try:
                await slot.__aenter__()
            except Occupied:
                return self._refused(began, slot.retry_in, may_raise), None
            return self._granted(began, None), slot
        nonce = new_id()
        while self.rule.counted is not None:
            rule = self.rule.counted
            taken = await self._desk.ask(functools.partial(_ask, self._wish(nonce, rule)))
            if taken.granted:
                break
            if until is not None and boot_us() + taken.retry_in > until:
                return self._refused(began, taken.retry_in, may_raise), None
            await self._desk.sleep(taken.retry_in)
        return self._granted(began, nonce), None

    def _take_sync(self) -> tuple[Grant, Lock | None]:
        if self.rule.lease_for is not None:
            began, slot = boot_us(), self._slot(self._wait)
            try:
                slot.__enter__()
            except Occupied:
                return self._refused(began, slot.retry_in, may_raise=True), None
            return self._granted(began, None), slot
        return asyncio.run(self._take(self._wait))

    def _slot(self, within: int | None) -> Lock:
        return Lock(
            self._desk,
            self._stored,
            lease_for=self.rule.lease_for or 0,
            wait=within,
            slots=self.rule.amount or 1,
            shown=f"a slot of limiter {self.name!r}",
        )

    def _wish(self, nonce: str, rule: LimitRule) -> Take:
        keep_for = _SETTLED_WITHIN if self.rule.is_settled else 60 * SECOND
        return Take(limiter=self._stored, nonce=nonce, rule=rule, cost=self._cost, keep_for=keep_for)

    def _granted(self, began: int, nonce: str | None) -> Grant:
        settle = functools.partial(self._settle, nonce) if self.rule.is_settled and nonce is not None else None
        return Grant(True, 0.0, (boot_us() - began) / SECOND, settle)

    async def _settle(self, nonce: str, cost: int) -> None:
        await self._desk.ask(lambda store: store.settle(self._stored, nonce, cost))

    def _refused(self, began: int, retry_in: int, may_raise: bool) -> Grant:
        waits = max(1, retry_in) / SECOND
        if may_raise and self.policy == "raise":
            raise LimitExceeded(
                f"limiter {self.name!r}: {self.rule} is used up; the same is possible in {waits:.3g} s", retry_in=waits
            )
        return Grant(False, waits, (boot_us() - began) / SECOND)


def checked_limiter(value: Any) -> Limiter | None:
    """`limiter=` of a task. Raises InvalidOption."""
    if value is None or isinstance(value, Limiter):
        return value
    raise InvalidOption(f"limiter={value!r}: give what app.limiter(name, rule) answered, or None")


def gate_of(limiter: Limiter, *, reschedule: bool = True) -> Callable[..., Awaitable[Any]]:
    """Middleware that asks the limiter before the run begins, and waits nowhere: no slot is held for a run that may
    not go on. What is refused is given back until it fits, no attempt spent; with `reschedule=False` it raises
    LimitExceeded as an error of the task's; with the policy "skip" the run ends skipped."""

    async def limited(ctx: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        del ctx
        async with limiter.at_once() as grant:
            if grant:
                return await call_next()
            said = f"limiter {limiter.name!r}: {limiter.rule} is used up"
            if limiter.policy == "skip":
                raise Skip(said)
            if not reschedule:
                raise LimitExceeded(f"{said}; the same is possible in {grant.retry_in:.3g} s", retry_in=grant.retry_in)
            retry_in = grant.retry_in if limiter.rule.lease_for is None else min(grant.retry_in, 1.0)
            raise Limited(said, retry_in)

    limited.is_gate = True  # type: ignore[attr-defined]
    return limited


class Limited(RetryIn):
    """The run is given back until the limiter grants it."""

    is_error = False

    def __init__(self, said: str, retry_in: float) -> None:
        super().__init__(retry_in, spend_attempt=False)
        self.said = said

    def __str__(self) -> str:
        return self.said


async def _ask(take: Take, store: ReadableStore) -> Taken:
    return await store.take(take)
