"""The reads for command line, web and metrics, and the idle poll (G9)."""

from __future__ import annotations

from oncron._model import GapReason, OutcomeKind, Overlap, RunFilter, RunState, Status, WorkerRecord, new_id
from oncron._store import ReadableStore
from tests.contract.given import (
    LEASE,
    SECOND,
    at,
    beat,
    changed,
    claim,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    gap,
    picture,
    plan,
    run_now,
    seen,
)

# --- runs -----------------------------------------------------------------------------------


async def test_runs_are_listed_newest_first(store: ReadableStore) -> None:
    ids = [(await enqueued(store, now=at(second), due_at=at(-second))).id for second in range(4)]

    assert [run.id for run in await store.runs(RunFilter())] == ids[::-1]


async def test_runs_of_one_instant_are_listed_by_id_downwards(store: ReadableStore) -> None:
    ids = [(await enqueued(store, now=at(0))).id for _ in range(4)]

    assert [run.id for run in await store.runs(RunFilter())] == sorted(ids, reverse=True)


async def test_every_field_of_a_filter_must_match(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.ALLOW)
    await fired(store, at(1))
    await fired(store, at(3))
    await enqueued(store, now=at(2))
    await enqueued(store, "other", now=at(4))
    first = (await store.runs(RunFilter(schedule="report")))[-1]
    await finish(store, await claimed(store, now=at(1)), now=at(5))

    async def found(**fields: object) -> list[int]:
        return [run.created_at for run in await store.runs(RunFilter(**fields))]

    assert await found(schedule="report") == [at(3), at(1)]
    assert await found(task="send") == [at(3), at(2), at(1)]
    assert await found(task="other") == [at(4)]
    assert await found(state=RunState.SUCCEEDED) == [at(1)]
    assert await found(since=at(3)) == [at(4), at(3)]
    assert await found(task="send", since=at(2), schedule="report") == [at(3)]
    assert await found(schedule="nobody") == []
    assert await found(limit=2) == [at(4), at(3)]
    assert (await run_now(store, first.id)).state is RunState.SUCCEEDED


async def test_a_listing_is_paged_by_the_last_id_seen(store: ReadableStore) -> None:
    for second in (1, 1, 1, 2, 2):
        await enqueued(store, now=at(second))
    whole = [run.id for run in await store.runs(RunFilter())]

    pages, before = [], None
    while page := await store.runs(RunFilter(before=before, limit=2)):
        pages += [run.id for run in page]
        before = page[-1].id

    assert pages == whole


async def test_runs_are_found_by_id(store: ReadableStore) -> None:
    runs = [await enqueued(store, now=at(0)) for _ in range(3)]
    unknown = "0197742a-0000-7000-8000-000000000000"

    assert await store.get_run(runs[0].id) == runs[0]
    assert await store.get_run(unknown) is None
    found = await store.get_runs([runs[2].id, unknown, runs[0].id])
    assert {run.id: run for run in found} == {runs[0].id: runs[0], runs[2].id: runs[2]}
    assert await store.get_runs([]) == []


# --- schedules and gaps ---------------------------------------------------------------------


async def test_schedules_are_listed_by_name_removed_ones_too(store: ReadableStore) -> None:
    for name in ("c", "a", "b"):
        await declared(store, name)
    await changed(store, await seen(store, "a"), now=at(0), status=Status.REMOVED)

    assert [row.name for row in await store.schedules()] == ["a", "b", "c"]
    assert [row.name for row in await store.schedules(["c", "nobody", "a"])] == ["a", "c"]
    assert await store.schedules([]) == []


async def test_gaps_are_listed_newest_first_within_a_window(store: ReadableStore) -> None:
    await declared(store, "other")
    row = await declared(store)
    reasons = [GapReason.MISSED, GapReason.TOO_OLD, GapReason.PAUSED]
    for n, reason in enumerate(reasons):
        first, last = at(10 * n + 1), at(10 * n + 9)
        passing = plan(row, new_cursor=last, gaps=[gap(first, last, 9, reason)])
        await store.fire([passing], fire_id=new_id(), now=last)
        row = await seen(store)

    async def found(**window: int) -> list[GapReason]:
        return [each.reason for each in await store.gaps("report", **window)]

    assert await found() == reasons[::-1]
    assert await found(since=at(9)) == reasons[::-1], "those that touch the window"
    assert await found(since=at(9.5)) == reasons[:0:-1]
    assert await found(until=at(11)) == reasons[1::-1]
    assert await found(until=at(10.5)) == reasons[:1]
    assert await found(since=at(12), until=at(13)) == [GapReason.TOO_OLD]
    assert await found(limit=1) == reasons[-1:]
    assert await store.gaps("other") == []
    assert await store.gaps("nobody") == []


# --- stats ----------------------------------------------------------------------------------


async def test_stats_count_schedules_by_status_and_runs_by_state(store: ReadableStore) -> None:
    for name in ("a", "b", "c"):
        await declared(store, name, overlap=Overlap.ALLOW)
    await changed(store, await seen(store, "c"), now=at(0), status=Status.PAUSED)
    await fired(store, at(1), at(2), at(3), name="a")
    done, running = (await claim(store, limit=2, now=at(3))).runs
    await finish(store, done, OutcomeKind.FAILED, now=at(3))
    await beat(store, "w1", [running], now=at(3))

    stats = await store.stats(now=at(4))

    assert stats.now == at(4)
    assert {status: n for status, n in stats.schedules.items() if n} == {"active": 2, "paused": 1}
    assert {state: n for state, n in stats.runs.items() if n} == {"pending": 1, "running": 1, "failed": 1}
    assert [worker.id for worker in stats.workers] == ["w1"]


async def test_a_schedule_is_overdue_a_minute_after_its_next_tick(store: ReadableStore) -> None:
    await declared(store, "late")
    await declared(store, "paused")
    await changed(store, await seen(store, "paused"), now=at(0), status=Status.PAUSED)

    assert (await store.stats(now=at(61))).overdue == 0
    assert (await store.stats(now=at(61) + 1)).overdue == 1


# --- poll -----------------------------------------------------------------------------------


async def test_poll_tells_the_next_tick_of_any_active_schedule(store: ReadableStore) -> None:
    assert (await store.poll([], None, now=at(0))).next_tick_at is None
    await declared(store, "later", now=at(5))
    await declared(store, "sooner", now=at(1))
    assert (await store.poll([], None, now=at(5))).next_tick_at == at(2)

    await changed(store, await seen(store, "sooner"), now=at(5), status=Status.PAUSED)

    answer = await store.poll([], None, now=at(5))
    assert (answer.now, answer.next_tick_at) == (at(5), at(6))


async def test_poll_tells_when_a_run_of_the_given_tasks_and_queues_may_be_claimed(store: ReadableStore) -> None:
    await enqueued(store, "send", due_at=at(30), now=at(0))
    await enqueued(store, "send", queue="slow", due_at=at(20), now=at(0))
    await enqueued(store, "other", due_at=at(10), now=at(0))

    async def next_due(tasks: list[str], queues: list[str] | None) -> int | None:
        return (await store.poll(tasks, queues, now=at(50))).next_due_at

    assert await next_due(["send"], ["default"]) == at(30), "in the past, if something is due now"
    assert await next_due(["send"], None) == at(20)
    assert await next_due(["send", "other"], None) == at(10)
    assert await next_due(["send", "other"], ["empty"]) is None
    assert await next_due([], None) is None


async def test_poll_does_not_announce_what_is_parked_held_or_ended(store: ReadableStore) -> None:
    await declared(store, overlap=Overlap.QUEUE)
    await fired(store, at(1), at(2))
    assert (await store.poll(["send"], None, now=at(3))).next_due_at == at(1)
    head = await claimed(store, now=at(3))
    assert (await store.poll(["send"], None, now=at(3))).next_due_at is None

    await finish(store, head, now=at(3))

    assert (await store.poll(["send"], None, now=at(3))).next_due_at == at(2)


async def test_the_version_rises_with_every_change_of_a_schedule_and_with_nothing_else(store: ReadableStore) -> None:
    """G9: by it a replica that missed every hint finds out."""

    async def version() -> int:
        return (await store.poll([], None, now=at(9))).version

    versions = [await version()]
    await declared(store)
    versions.append(await version())
    await declared(store, "second")
    versions.append(await version())
    await changed(store, await seen(store), now=at(0), retries=9)
    versions.append(await version())
    await changed(store, await seen(store), now=at(0), status=Status.PAUSED)
    versions.append(await version())
    assert versions == sorted(set(versions))

    await fired(store, at(1), name="second")
    await finish(store, await claimed(store, now=at(1)), now=at(1))
    await enqueued(store, now=at(1))
    stale = await changed(store, await seen(store, "second"), now=at(0), cursor=at(99))

    assert not stale.changed
    assert await version() == versions[-1]


async def test_poll_names_the_workers_that_fire_by_their_id(store: ReadableStore) -> None:
    for name, roles in (("b", ("scheduler", "worker")), ("a", ("scheduler",)), ("c", ("worker",))):
        await store.heartbeat(WorkerRecord(id=name, roles=roles), LEASE, now=at(0))

    assert sorted((await store.poll([], None, now=at(1))).workers) == ["a", "b"]


async def test_a_worker_whose_lease_ended_less_than_twenty_seconds_ago_is_still_counted_on(
    store: ReadableStore,
) -> None:
    """An idle worker's heartbeats are further apart than its lease is long."""
    await beat(store, "w1", now=at(0))
    end = at(0) + LEASE

    assert (await store.poll([], None, now=end + 19 * SECOND)).workers == ("w1",)
    assert (await store.poll([], None, now=end + 21 * SECOND)).workers == ()


async def test_reading_changes_nothing(store: ReadableStore) -> None:
    await declared(store)
    await fired(store, at(1))
    await claim(store, now=at(1))
    before = await picture(store)

    await store.poll(["send"], None, now=at(500))
    await store.due(at(500))
    await store.stats(now=at(500))
    await store.check()

    assert await picture(store) == before
