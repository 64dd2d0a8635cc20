"""A store with a past that looks like life: a shop's schedules over two weeks, with what goes wrong in two weeks.

Nothing is run: what a fleet would have written is written step by step, each told its instant.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from oncron import Oncron, cron, daily, every, weekly
from oncron._clock import SECOND, wall_us
from oncron._engine.lines import Lines
from oncron._groups import NewBatch
from oncron._model import (
    Change,
    ClaimSpec,
    Definition,
    FirePlan,
    Gap,
    GapReason,
    NewRun,
    Outcome,
    OutcomeKind,
    Overlap,
    Report,
    RunRecord,
    ScheduleRecord,
    Status,
    TickRun,
    WorkerRecord,
    new_id,
    new_run_id,
    tick_run_id,
)
from oncron._store import ReadableStore
from oncron.triggers import Trigger

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LEASE = 15 * SECOND
HTML = "<img src=x onerror=alert(1)>"
ODD = f"weekly-report {HTML} & friends"
"""A schedule's name that is not only a name."""

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 88, in import_prices
    rows = list(csv.DictReader(fetch(url)))
  File "/srv/shop/jobs.py", line 41, in fetch
    raise SupplierDown(f"{url}: 503 after {attempts} attempts")
shop.errors.SupplierDown: https://prices.example/feed.csv: 503 after 4 attempts
"""

Draw = Callable[[random.Random, int], tuple[OutcomeKind, int]]
"""How the run of a tick ends, and after how long."""


def usual(took: float, *, failing: float = 0.0, lost: float = 0.0, spread: float = 0.35) -> Draw:
    def draw(chance: random.Random, _: int) -> tuple[OutcomeKind, int]:
        dice = chance.random()
        kind = (
            OutcomeKind.LOST if dice < lost else OutcomeKind.FAILED if dice < lost + failing else OutcomeKind.SUCCEEDED
        )
        return kind, round(took * SECOND * chance.lognormvariate(0, spread))

    return draw


@dataclass(frozen=True)
class Story:
    name: str
    trigger: Trigger
    task: str
    draw: Draw
    zone: str = "Europe/Berlin"
    days: float = 14
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    missed: tuple[float, float] | None = None
    """Days ago: nobody fired between the two."""
    paused: tuple[float, float] | None = None
    """Days ago; until 0 it is paused still."""
    stopped: float = 0
    """Hours ago: since then nobody has fired it."""
    still_running: bool = False
    """Whether its newest run has not ended."""


def _slower_and_slower(chance: random.Random, left: int) -> tuple[OutcomeKind, int]:
    return usual(40 + 600 / (3 + left / DAY), failing=0.01)(chance, left)


def stories() -> list[Story]:
    money, storage, suppliers = ({"tags": (tag,)} for tag in ("money", "storage", "suppliers"))
    nightly = {"timeout": 2 * HOUR, "tags": ("night", "storage"), "retries": 0}
    orders = {"tags": ("orders",), "timeout": 5 * MINUTE, "retries": 1}
    search = {"timeout": 3 * HOUR, "overlap": Overlap.SKIP}
    new_york = "America/New_York"
    backup = usual(1500, failing=0.08, lost=0.05, spread=0.15)
    sync = usual(45, failing=0.012, lost=0.003, spread=0.6)
    return [
        Story("nightly-backup", cron("30 2 * * *"), "backup", backup, options=nightly),
        Story("sync-orders", every(minutes=20), "sync_orders", sync, options=orders, missed=(6.6, 6.3)),
        Story("import-prices", cron("10 * * * *"), "import", _slower_and_slower, options=suppliers, paused=(3, 2.5)),
        Story("send-digest", daily("08:00"), "send_digest", usual(210), zone=new_york, options={"queue": "mail"}),
        Story("late-tickets", cron("30 1 * * *"), "late_tickets", usual(4), zone=new_york),
        Story("invoices", weekly("mon-fri", "06:00"), "invoices", usual(95, failing=0.1), options=money),
        Story("clean-uploads", every(hours=2), "clean_uploads", usual(0.8), options=storage),
        Story("rotate-keys", cron("0 3 1 * *"), "rotate_keys", usual(3), days=40),
        Story(
            "reindex-search", every(hours=1), "reindex", usual(2900, spread=0.25), options=search, still_running=True
        ),
        Story("ping-partners", every(hours=6), "ping", usual(0.3), paused=(4, 0), options=suppliers),
        Story("invoice-reminders", cron("0 9 * * *"), "reminders", usual(30), stopped=30, options=money),
        Story(ODD, weekly("sun", "04:00"), "weekly_report", usual(620, spread=0.2), days=40),
    ]


async def fill(app: Oncron, chosen: Sequence[Story] | None = None) -> None:
    """Write it all, up to the clock's now."""
    now = wall_us()
    for story in stories() if chosen is None else chosen:
        await app._desk.ask(lambda store, story=story: _Past(store, story, now).write())
    await app._desk.ask(lambda store: _around(store, now))


class _Past:
    """One schedule's."""

    def __init__(self, store: ReadableStore, story: Story, now: int) -> None:
        self._store, self._story, self._now = store, story, now
        self._chance = random.Random(story.name)
        self._trigger = story.trigger.bind(story.name, story.zone)
        self._running: tuple[RunRecord, OutcomeKind, int] | None = None

    async def write(self) -> None:
        story, start = self._story, self._now - round(self._story.days * DAY)
        self._row = await self._declare(start)
        for tick in self._ticks(start):
            if self._running is not None and self._running[2] <= tick:
                await self._end()
            await self._fire(tick)
        if self._running is not None and not (story.still_running or self._running[2] > self._now):
            await self._end()
        if story.paused is not None and story.paused[1] == 0:
            await self._change(Status.PAUSED, "partner is moving to a new API; ops, ticket 4711")

    def _ticks(self, start: int) -> Iterator[int]:
        until = self._now - round(self._story.stopped * HOUR)
        tick = self._trigger.next_after_us(start)
        while tick is not None and tick <= until:
            yield tick
            tick = self._trigger.next_after_us(tick)

    def _is_in(self, stretch: tuple[float, float] | None, tick: int) -> bool:
        return stretch is not None and stretch[1] * DAY < self._now - tick <= stretch[0] * DAY

    async def _declare(self, start: int) -> ScheduleRecord:
        story = self._story
        definition = Definition(name=story.name, trigger=str(self._trigger), task=story.task, **story.options)
        change = Change(
            name=story.name, definition=definition, status=Status.ACTIVE, new_cursor=start,
            next_at=self._trigger.next_after_us(start),
        )  # fmt: skip
        [answer] = await self._store.declare([change], now=start)
        assert answer.record is not None
        return answer.record

    async def _change(self, status: Status, note: str) -> None:
        row = self._row
        change = Change(
            name=row.name, definition=row.definition, status=status, note=note, new_cursor=row.cursor, next_at=None,
            seen_revision=row.revision, seen_cursor=row.cursor,
        )  # fmt: skip
        assert (await self._store.declare([change], now=self._now - DAY))[0].changed

    async def _fire(self, tick: int) -> None:
        row, story = self._row, self._story
        ticks: list[TickRun] = []
        gaps: list[Gap] = []
        if self._is_in(story.missed, tick):
            gaps = [Gap(schedule=row.name, first=tick, last=tick, count=1, reason=GapReason.MISSED)]
        elif self._is_in(story.paused, tick):
            gaps = [
                Gap(
                    schedule=row.name,
                    first=tick,
                    last=tick,
                    count=1,
                    reason=GapReason.PAUSED,
                    detail="supplier asked for it",
                )
            ]
        else:
            ticks = [TickRun(run_id=tick_run_id(row.name, tick), tick=tick, due_at=tick)]
        plan = FirePlan(
            name=row.name, seen_revision=row.revision, seen_cursor=row.cursor, new_cursor=tick,
            next_at=self._trigger.next_after_us(tick), ticks=tuple(ticks), gaps=tuple(gaps),
        )  # fmt: skip
        late = round(self._chance.lognormvariate(9, 0.9)) + (20 * SECOND if self._chance.random() < 0.01 else 0)
        fired_at = min(tick + late, self._now)
        host = self._chance.choice(("web-1", "web-2", "web-3"))
        spec = ClaimSpec(
            claim_id=new_id(), worker=f"{host}:4{host[-1]}7", limit=1, lease_for=LEASE, tasks=(story.task,)
        )
        fired = await self._store.fire([plan], spec, fire_id=new_id(), now=fired_at)
        [self._row] = await self._store.schedules([row.name])
        for run in fired.leases:
            kind, took = story.draw(self._chance, self._now - tick)
            self._running = (run, kind, fired_at + took)

    async def _end(self) -> None:
        assert self._running is not None
        run, kind, ended_at = self._running
        error = TRACEBACK if kind is OutcomeKind.FAILED else None
        reason = {
            OutcomeKind.FAILED: "SupplierDown: https://prices.example/feed.csv: 503 after 4 attempts",
            OutcomeKind.LOST: f"{run.worker} did not answer for 15 s; retries=0",
        }.get(kind)
        result = (
            json.dumps({"rows": self._chance.randrange(10_000), "stdout": f"done {HTML}\n"}) if error is None else None
        )
        log = None if error is None else _log(run, ended_at, reason or "")
        end = Outcome(run_id=run.id, token=run.token, kind=kind, error=error, reason=reason, result=result, log=log)
        await self._store.finish([end], now=ended_at)
        self._running = None


def _log(run: RunRecord, ended_at: int, reason: str) -> str:
    lines = Lines(None)
    for attempt in range(1, 5):
        at = ended_at - (5 - attempt) * 20 * SECOND
        if attempt > 1:
            lines.add(at, f"attempt {attempt} began on {run.worker}")
        lines.add(at + 40_000, "INFO 412 products, 6 suppliers")
        lines.add(at + 9 * SECOND, "WARNING prices.example answers 503; once more in 5 s")
        lines.add(at + 15 * SECOND, f"attempt {attempt} on {run.worker} failed: {reason}")
    return lines.text


async def beat(store: ReadableStore) -> None:
    """The replicas that are alive say so."""
    for number in (1, 2):
        worker = WorkerRecord(
            id=f"web-{number}:4{number}7", host=f"web-{number}", pid=40 + number, started_at=wall_us() - 5 * DAY,
            release=12, tzdata="2026.02", version="0.1.0", roles=("scheduler", "worker"), tasks=("backup", "mail"),
            skew=(2_400, -1_700_000)[number - 1],
        )  # fmt: skip
        await store.heartbeat(worker, LEASE)


async def _around(store: ReadableStore, now: int) -> None:
    """Replicas, queues, runs that nobody scheduled, a batch, a lock."""
    await beat(store)
    silent = WorkerRecord(id="web-3:437", host="web-3", pid=43, started_at=now - 9 * DAY, roles=("scheduler", "worker"))
    await store.heartbeat(silent, LEASE, now=now - 31 * SECOND)
    mails = [
        NewRun(
            id=new_run_id(),
            task="mail",
            queue="mail",
            args=json.dumps({"to": f"customer-{n}@example.org", "text": HTML}),
        )
        for n in range(12)
    ]
    await store.enqueue(mails, now=now - 50 * MINUTE)
    await store.enqueue([NewRun(id=new_run_id(), task="mail", queue="mail", delay=3 * HOUR)], now=now)
    await store.set_queue("mail", paused=True, note="bounces: the provider throttles us", now=now - 40 * MINUTE)
    await _walk(store, now)
    batch = await store.open_batch(NewBatch(id=new_id(), data='"catalogue of autumn"'), now=now - HOUR)
    pages = [NewRun(id=new_run_id(), task="render", queue="pages", batch=batch.id) for _ in range(30)]
    await store.enqueue(pages, now=now - HOUR)
    spec = ClaimSpec(claim_id=new_id(), worker="web-1:417", limit=21, lease_for=LEASE, tasks=("render",))
    for place, run in enumerate((await store.claim(spec, now=now - 58 * MINUTE)).runs):
        kind = OutcomeKind.FAILED if place == 7 else OutcomeKind.SUCCEEDED
        ended_at = now - 57 * MINUTE + place * SECOND
        end = Outcome(run_id=run.id, token=run.token, kind=kind)
        if kind is OutcomeKind.FAILED:
            end = replace(end, error=TRACEBACK, log=_log(run, ended_at, "SupplierDown: 503 after 4 attempts"))
        await store.finish([end], now=ended_at)
    await store.acquire("leader:cache-warmer", owner="web-2:427", lease_for=HOUR)


async def _walk(store: ReadableStore, now: int) -> None:
    """A long run that says how far it is."""
    await store.enqueue([NewRun(id=new_run_id(), task="resize_images", queue="images")], now=now - 20 * MINUTE)
    spec = ClaimSpec(claim_id=new_id(), worker="web-2:427", limit=1, lease_for=LEASE, tasks=("resize_images",))
    [run] = (await store.claim(spec, now=now - 19 * MINUTE)).runs
    said = json.dumps({"done": 1840, "total": 3000, "note": "summer/beach-0184.jpg"})
    worker = WorkerRecord(id="web-2:427", host="web-2", pid=42, started_at=now - 5 * DAY, roles=("worker",))
    await store.heartbeat(worker, LEASE, [(run.id, run.token)], [Report(run_id=run.id, token=run.token, progress=said)])
