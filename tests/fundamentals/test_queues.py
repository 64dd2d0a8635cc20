"""Queues: paused, sequential and limited for the whole fleet; limiters; runs that follow one another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from oncron import Oncron
from oncron.errors import DefinitionError, DuplicateName, InvalidOption, InvalidTask, LimitExceeded, NotFound
from oncron.limits import leaky, points, sliding, slots, unlimited, window


async def test_s12_a_paused_queue_gives_nothing_to_anybody_until_it_is_resumed(replica: Callable[[], Oncron]) -> None:
    app, other = replica(), replica()
    for each in (app, other):

        @each.task(queue="mail")
        def send() -> None: ...

    async with app, other:
        paused = await app.pause_queue("mail", note="provider is down")
        assert (paused.paused, paused.note) == (True, "provider is down")
        run = await app.enqueue("send")
        await (await app.enqueue("send", queue="default")).wait(10)
        assert (await app.get_run(run.id)).state == "pending"
        [mail] = [queue for queue in await other.queues() if queue.name == "mail"]
        assert (mail.ready, mail.running, mail.paused) == (1, 0, True)
        assert not (await app.resume_queue("mail")).paused
        await run.wait(10)


async def test_a_queue_that_nobody_names_is_not_found(app: Oncron) -> None:
    with pytest.raises(NotFound, match=r"no queue 'mial'.*'default'"):
        await app.pause_queue("mial")


async def test_s13_a_sequential_queue_runs_one_at_a_time_in_the_fleet(replica: Callable[[], Oncron]) -> None:
    running, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        for _ in range(50):  # turns in which another one could begin
            await asyncio.sleep(0)
        running -= 1
        done += 1

    apps = [replica(), replica()]
    for app in apps:
        app.queue("ledger", sequential=True)
        app.task(work, name="work", queue="ledger")
    async with apps[0], apps[1]:
        runs = [await apps[0].enqueue("work") for _ in range(8)]
        for run in runs:
            await run.wait(20)
    assert (most, done) == (1, 8)


async def test_g13_the_whole_fleet_has_a_limit_and_what_waits_is_in_the_store(app: Oncron) -> None:
    running, most, three, go = 0, 0, asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three.set()
        await go.wait()
        running -= 1

    apps = [Oncron("memory://", max_running=3, lease_for=3) for _ in range(2)]
    for each in apps:
        each._open = app._open
        each.task(work, name="work")
    async with apps[0], apps[1]:
        runs = [await apps[0].enqueue("work") for _ in range(12)]
        await asyncio.wait_for(three.wait(), 15)
        assert (await app.stats()).runs == {"running": 3, "pending": 9}
        go.set()
        for run in runs:
            await run.wait(20)
    assert most == 3


def test_a_queue_is_declared_once_and_with_a_limit() -> None:
    app = Oncron("memory://", max_running=3)
    app.queue("ledger", sequential=True)
    with pytest.raises(DuplicateName, match=r"'ledger' is declared at .*test_queues\.py"):
        app.queue("ledger", max_running=2)
    with pytest.raises(InvalidOption, match="sequential=True is max_running=1"):
        app.queue("other", max_running=2, sequential=True)
    with pytest.raises(InvalidOption, match="give max_running="):
        app.queue("other")
    with pytest.raises(InvalidOption, match="from 1"):
        app.queue("other", max_running=0)
    with pytest.raises(InvalidOption, match="from 1"):
        Oncron("memory://", max_running=0)


# --- limiters ---------------------------------------------------------------------------


async def test_s42_a_sliding_limit_holds_for_all_replicas_together(replica: Callable[[], Oncron]) -> None:
    one, other = (each.limiter("api", sliding(3, per=60), wait_for=0) for each in (replica(), replica()))
    for limiter in (one, other, one):
        async with limiter as grant:
            assert grant
    with pytest.raises(LimitExceeded, match=r"'api': sliding\(3, per=60\) is used up") as refused:
        async with other:
            raise AssertionError("a fourth")
    assert 0 < refused.value.retry_in <= 60
    assert (await one.used(), await other.remaining()) == (3, 0)


async def test_s41_s43_windows_and_buckets_hold_too(app: Oncron) -> None:
    for limiter in (
        app.limiter("w", window(2, per=3600), wait_for=0),
        app.limiter("b", leaky(2, per=3600), wait_for=0),
    ):
        for _ in range(2):
            async with limiter:
                pass
        with pytest.raises(LimitExceeded):
            async with limiter:
                raise AssertionError("a third")


async def test_s40_a_limiter_waits_raises_or_skips_as_its_policy_says(app: Oncron) -> None:
    waits = app.limiter("waits", sliding(1, per=0.2), policy="wait")
    skips = app.limiter("skips", sliding(1, per=60), policy="skip")
    soon = app.limiter("soon", sliding(1, per=0.2))
    await waits.used()  # the store is opened
    async with waits as first, skips, soon:
        assert first.waited < 0.2
    async with waits as second:
        assert second.waited > 0.05
    async with skips as third:
        assert not third
        assert third.retry_in > 50
    async with soon as fourth:
        assert fourth


async def test_a_slot_that_is_given_back_by_another_task_than_took_it_is_free(app: Oncron) -> None:
    database = app.limiter("db", slots(2), wait_for=0)
    for _ in range(3):  # as a fixture or a stack of contexts is entered in one task and left in another
        await asyncio.create_task(database.__aenter__())
        async with database:
            assert await database.used() == 2
        await database.__aexit__(None, None, None)
        assert await database.used() == 0


async def test_leaving_a_limiter_that_was_not_entered_says_so(app: Oncron) -> None:
    for rule in (slots(1), sliding(9, 60)):
        limiter = app.limiter(f"of {rule}", rule)
        with pytest.raises(DefinitionError, match="was not entered, or was left before"):
            await limiter.__aexit__(None, None, None)
        async with limiter:
            pass
        with pytest.raises(DefinitionError, match="was not entered, or was left before"):
            await limiter.__aexit__(None, None, None)


async def test_s44_slots_are_held_by_so_many_at_the_same_time(replica: Callable[[], Oncron]) -> None:
    one, other = (each.limiter("db", slots(2), policy="skip") for each in (replica(), replica()))
    async with one as a, other as b, one as c:
        assert (bool(a), bool(b), bool(c)) == (True, True, False)
        assert await one.used() == 2
    async with other as again:
        assert again


async def test_s45_points_are_estimated_and_settled(app: Oncron) -> None:
    limiter = app.limiter("model", points(100, per=3600), wait_for=0)
    async with limiter.cost(90) as grant:
        await grant.settle(20)
    assert await limiter.used() == 20
    async with limiter.cost(80):
        pass
    with pytest.raises(LimitExceeded):
        async with limiter.cost(30):
            raise AssertionError("more than there is")
    with pytest.raises(InvalidOption, match="never granted"):
        limiter.cost(101)


async def test_s46_an_unlimited_limiter_has_the_same_face(app: Oncron) -> None:
    limiter = app.limiter("free", unlimited())
    async with limiter as grant:
        assert grant
    assert (await limiter.used(), await limiter.remaining()) == (0, None)


def test_a_limiter_decorates_and_serves_sync_code(app: Oncron) -> None:
    limiter = app.limiter("api", sliding(2, per=60), policy="skip")

    @limiter
    def call(n: int) -> int:
        return n

    assert [call(1), call(2), call(3)] == [1, 2, None]
    with limiter as grant:
        assert not grant


async def test_s36_a_run_that_is_limited_is_given_back_until_it_fits(app: Oncron) -> None:
    limiter = app.limiter("api", sliding(2, per=0.5))
    began: list[float] = []

    @app.task(limiter=limiter, retries=0)
    async def call() -> None:
        began.append(asyncio.get_running_loop().time())

    async with app:
        runs = [await call.enqueue() for _ in range(5)]
        for run in runs:
            await run.wait(20)
        assert [(await app.get_run(run.id)).error for run in runs] == [None] * 5
    for first, third in zip(began, began[2:], strict=False):
        assert third - first > 0.4


async def test_a_run_that_is_limited_may_be_skipped_instead(app: Oncron) -> None:
    limiter = app.limiter("api", sliding(1, per=60), policy="skip")

    @app.task(limiter=limiter)
    async def call() -> None: ...

    async with app:
        await (await call.enqueue()).wait(10)
        second = await call.enqueue()
        async with asyncio.timeout(10):
            while (await app.get_run(second.id)).state != "skipped":  # noqa: ASYNC110 - its state is in the store
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("make", "mend"),
    [
        (lambda app: app.limiter("a", window(0, per=1)), "a limit of 0"),
        (lambda app: app.limiter("a", window(1, per=0)), "per=0"),
        (
            lambda app: app.limiter("a", sliding("3", per=1)),  # type: ignore[arg-type]
            "a limit of '3'",
        ),
        (lambda app: app.limiter("a", slots(1, lease_for="x")), "lease_for='x'"),
        (lambda app: app.limiter("a", 5), "is no rule"),
        (lambda app: app.limiter("a", unlimited(), policy="drop"), "'raise', 'wait', 'skip'"),
        (lambda app: app.limiter("", unlimited()), "1 to 200"),
        (lambda app: app.limiter("a", slots(2)).cost(2), "takes one slot"),
        (lambda app: app.task(print, name="p", limiter=5), "give what app.limiter"),
    ],
)
def test_a_limiter_that_cannot_be_is_refused_where_it_is_made(make: Callable[[Oncron], object], mend: str) -> None:
    with pytest.raises(InvalidOption, match=mend):
        make(Oncron("memory://"))


def test_a_limiter_is_made_once() -> None:
    app = Oncron("memory://")
    app.limiter("api", unlimited())
    with pytest.raises(DuplicateName, match=r"'api' is made at .*test_queues\.py"):
        app.limiter("api", unlimited())


# --- every_after_end ----------------------------------------------------------------------


async def test_g33_a_run_follows_the_end_of_the_last_one(replica: Callable[[], Oncron]) -> None:
    spans: list[tuple[float, float]] = []
    enough = asyncio.Event()

    async def sweep() -> None:
        began = asyncio.get_running_loop().time()
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, over.set)
        await over.wait()
        spans.append((began, asyncio.get_running_loop().time()))
        if len(spans) == 2:
            raise ValueError("the second fails, and a third follows all the same")
        if len(spans) >= 4:
            enough.set()

    apps = [replica(), replica()]
    for app in apps:
        app.task(sweep, name="sweep", every_after_end=0.1, retries=0)
    async with apps[0], apps[1]:
        await asyncio.wait_for(enough.wait(), 20)
    for (_, ended), (began, _) in itertools.pairwise(spans):
        assert began - ended > 0.09


async def test_a_run_that_was_enqueued_by_hand_starts_no_chain_of_its_own(app: Oncron) -> None:
    @app.task(every_after_end=3600)
    def sweep() -> None: ...

    async with app:
        async with asyncio.timeout(10):
            while not await app.runs(state="succeeded"):  # noqa: ASYNC110 - its state is in the store
                await asyncio.sleep(0)
        await (await sweep.enqueue()).wait(10)
        states = [run.state for run in await app.runs(task="sweep")]
    assert sorted(states) == ["pending", "succeeded", "succeeded"]


def test_a_task_that_needs_arguments_cannot_follow_itself() -> None:
    with pytest.raises(InvalidTask, match=r"runs it without arguments.*'tenant'"):

        @Oncron("memory://").task(every_after_end=60)
        def sweep(tenant: str) -> None: ...


async def test_a_run_that_a_limiter_keeps_waiting_says_why_and_shows_no_error(app: Oncron) -> None:
    limiter = app.limiter("api", sliding(1, per=60))

    @app.task(limiter=limiter)
    async def call() -> None: ...

    async with app:
        await (await call.enqueue()).wait(10)
        second = await call.enqueue()
        async with asyncio.timeout(10):
            while (waiting := await app.get_run(second.id)).attempt == 0 or waiting.state != "pending":  # noqa: ASYNC110 - its state is in the store
                await asyncio.sleep(0)
    assert waiting.reason == "limiter 'api': sliding(1, per=60) is used up"
    assert waiting.error is None
