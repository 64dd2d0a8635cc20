"""A user's file: pyright strict has nothing to say about it."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from oncron import (
    Event,
    GiveUp,
    HeldLock,
    Interrupted,
    Oncron,
    RetryIn,
    Run,
    RunContext,
    Schedule,
    Skip,
    cron,
    current_run,
    daily,
    every,
    job_lock_key,
    locked_run,
    metrics,
    middleware,
    monthly,
    once,
    tracing,
    weekly,
)
from oncron.backoff import exponential, fixed, polynomial
from oncron.errors import RunFailed
from oncron.testing import ManualClock, fake_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator


@dataclass
class Resources:
    url: str


@dataclass
class Order:
    id: int
    items: list[str]


@asynccontextmanager
async def resources(app: Oncron) -> AsyncGenerator[Resources]:
    yield Resources("https://example.org")


app = Oncron(
    "sqlite:///shop.db",
    timezone="Europe/Berlin",
    lifespan=resources,
    queues={"mail": 3, "default": 1},
    defaults={"retries": 5, "overlap": "queue"},
    keep_for=timedelta(days=1),
    stop_within=5,
)


@app.schedule(cron("0 3 * * *"), timeout=timedelta(minutes=30))
async def reindex() -> None: ...


@app.task(queue="mail", retries=5, backoff=exponential(1, max=60), retry_on=(OSError, RunFailed), unique=True)
def send_mail(to: str, subject: str = "hi") -> None: ...


@app.schedule(weekly("mon-fri", "08:00"), name="report-weekdays", args={"kind": "day"}, overlap="wait")
@app.schedule(monthly(-1, "18:00"), name="report-month", args={"kind": "month"}, missed="all", missed_limit=3)
@app.task(queue="reports", backoff=fixed(3))
def report(ctx: RunContext[Resources], kind: str) -> str:
    assert_type(ctx.state, Resources)
    assert_type(ctx.tick, datetime | None)
    ctx.progress(1, 2, note="half")
    ctx.checkpoint({"page": 3})
    ctx.enqueue(send_mail, to=kind)
    ctx.enqueue(charge, Order(1, []))
    ctx.log.info("at %s", ctx.state.url)
    if ctx.is_last_attempt:
        raise GiveUp("no")
    if ctx.stopping:
        raise RetryIn(timedelta(seconds=3), spend_attempt=False)
    return kind


@app.task
async def charge(order: Order) -> int:
    if not order.items:
        raise Skip("empty")
    assert_type(current_run(), RunContext[Any])
    return order.id


@app.task(backoff=polynomial(), unique=lambda args: str(args["order_id"]))
async def ship(ctx: RunContext, order_id: int, *, express: bool = False) -> Order:
    return Order(order_id, [])


@app.on("run.failed")
def alarm(event: Event) -> None:
    print(event.name, event.at, event.run)


@app.on("run.*")
async def log(event: Event) -> None: ...


@app.task
def keep(payload: Any, label: str = "") -> int:
    return len(label)


@app.schedule(every(minutes=1), args={"thing": 1})
async def keep_later(thing: object) -> int:
    return 1


@app.task
def by_keyword(*, n: int) -> int:
    return n


class Service:
    def sweep(self, days: int) -> int:
        return days


sweep = app.task(Service().sweep, name="sweep")
app.add_schedule("sweep-daily", daily(["03:00", "15:00"]), sweep, args={"days": 3}, jitter=30, tags=["cleaning"])
app.add_schedule("beat", every(minutes=5), reindex)
app.add_schedule("once", once(datetime(2099, 1, 1, tzinfo=UTC)), "elsewhere", start_at=datetime.now(UTC))


@app.task
def book(ctx: RunContext, amount: int) -> None:
    with ctx.transaction() as connection:
        connection.execute("insert into bookings values (?)", (amount,))
    mine = sqlite3.connect("shop.db")
    with ctx.transaction(connection=mine) as same:
        assert_type(same, sqlite3.Connection)
    book.options(connection=mine).enqueue_sync(amount)


@app.task
async def book_later(ctx: RunContext, amount: int) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into bookings values (%s)", (amount,))
    assert_type(await book.options(connection=object()).enqueue(3), Run[None])


async def main() -> None:
    run = await send_mail.options(delay=60, unique="welcome:7").enqueue(to="a@example.org")
    assert_type(run, Run[None])
    charged = await charge.enqueue(Order(1, ["tea"]))
    assert_type(charged, Run[int])
    assert_type(await charged.wait(timedelta(seconds=5)), int)
    assert_type(charged.result, int | None)
    assert_type(await ship.enqueue(3, express=True), Run[Order])
    assert_type(await ship.options(at=datetime.now(UTC)).enqueue(order_id=3), Run[Order])
    assert_type(await charge(Order(1, [])), int)
    assert_type(report.enqueue_sync("day"), Run[str])
    assert_type(await keep.enqueue(payload={}, label="x"), Run[int])
    assert_type(await keep_later.enqueue(thing=3), Run[int])
    assert_type(await keep_later(3), int)
    assert_type(await by_keyword.enqueue(n=3), Run[int])
    assert_type(await report.enqueue_many([{"kind": "a"}, {"kind": "b"}]), list[Run[str]])
    assert_type(sweep(3), int)
    assert_type(await sweep.enqueue(days=3), Run[int])
    assert_type(await app.schedules(tag="cleaning"), list[Schedule])
    schedule = await app.put_schedule("tenant-7", cron("*/15 * * * *", timezone="Asia/Tokyo"), "sync", args={"id": 7})
    assert_type(schedule.next_at, datetime | None)
    fired = await app.fire("tenant-7", reason="by hand")
    assert_type(fired, Run[Any])
    await app.pause("tenant-7", note="holiday")
    await app.resume("tenant-7")
    await app.remove_schedule("tenant-7")
    await app.cancel(fired.id)
    await app.retry(fired.id)
    for old in await app.runs(task="ship", state="failed", since=datetime.now(UTC) - timedelta(days=1)):
        print(old.id, old.error, old.reason)
    assert_type((await app.stats()).overdue, int)


def test_by_hand(ctx: RunContext[Resources]) -> None:
    assert_type(report(ctx, "day"), str)
    assert_type(app.sync(app.get_schedule("x")), Schedule)
    send_mail("a@example.org")


if __name__ == "__main__":
    with app:
        app.sync(main())
    app.run(scheduler=True, worker=True)


# --- middleware, walks, encryption ------------------------------------------------------------


@app.use
async def shout(ctx: RunContext[Resources], call_next: middleware.CallNext) -> Any:
    assert_type(ctx.state.url, str)
    return await call_next()


@app.use
@contextmanager
def tenant(ctx: RunContext) -> Generator[None]:
    yield


class Traced:
    def __init__(self, ctx: RunContext) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


app.use(Traced)
app.use(middleware.log(args=True))


def pages(cursor: int | None) -> Iterator[tuple[int, Order]]:
    yield 1, Order(1, [])


async def async_pages(cursor: int | None) -> AsyncIterator[tuple[int, Order]]:
    yield 1, Order(1, [])


@app.task(middleware=[middleware.retry(2, on=OSError, backoff=fixed(1)), tenant, Traced])
async def walks(ctx: RunContext) -> int:
    walk = ctx.walk(range(10), every=timedelta(seconds=2), max_items=3)
    for number in walk:
        assert_type(number, int)
    for order in ctx.walk(pages, name="orders"):
        assert_type(order, Order)
    async for order in ctx.walk(async_pages, name="more"):
        assert_type(order, Order)
    try:
        assert_type(walk.time_spent, timedelta)
    except Interrupted as stopped:
        assert_type(stopped.reason, str)
        raise
    return walk.items


secret = Oncron("memory://", encryption={"2026": b"k" * 32, "2025": "6b" * 32})


def plainly(lock: HeldLock) -> int:
    lock.check()
    return 1 if lock.lost else 0


async def waiting(lock: HeldLock) -> None:
    assert_type(lock.lost, bool)


async def locked() -> None:
    assert_type(locked_run("postgresql://localhost/shop", "nightly", plainly), bool)
    assert_type(await locked_run("postgresql://localhost/shop", "nightly", waiting), bool)
    assert_type(job_lock_key("nightly"), int)


async def tested() -> None:
    async with ManualClock(app, datetime(2026, 3, 29, tzinfo=UTC), eager=True, patience=5) as clock:
        assert_type(await clock.advance(timedelta(days=1)), list[Run[Any]])
        assert_type(await clock.sleep(1, "done"), str)
        assert_type(clock.fired("nightly"), list[datetime])
        clock.assert_enqueued(walks, {"n": 1}, times=0)
    with fake_run(walks, tick=datetime(2026, 3, 29, tzinfo=UTC), attempt=2) as ctx:
        await walks.fn(ctx)
        assert_type(ctx.committed, bool)


metrics.register(app).close()
tracing.trace(app)
tracing.pings(app, {"nightly": "https://hc-ping.com/uuid"}, start=None)
