"""Locks: one holder in the whole fleet."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest

from oncron import Oncron
from oncron.errors import DefinitionError, InvalidOption, LeaseLost, Occupied


async def seize(app: Oncron, name: str, token: int) -> None:
    """The lock goes to somebody else, as it does when its holder's lease ends unseen."""
    await app._desk.ask(lambda store: store.release(name, token))
    await app._desk.ask(lambda store: store.acquire(name, owner="somebody else", lease_for=60_000_000))


async def test_a_lock_has_one_holder_in_the_fleet(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    async with one.lock("import"):
        with pytest.raises(Occupied, match="'import' is held by somebody else"):
            async with other.lock("import"):
                raise AssertionError("two holders")
    async with other.lock("import"):
        pass


async def test_its_token_grows_from_holder_to_holder(replica: Callable[[], Oncron]) -> None:
    tokens: list[int] = []
    for app in (replica(), replica()):
        for _ in range(2):
            async with app.lock("import") as lock:
                tokens.append(lock.token)
    assert tokens == sorted(set(tokens))


async def test_a_lock_may_be_waited_for(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    order: list[str] = []

    async def second() -> None:
        async with other.lock("import", wait=10):
            order.append("second")

    async with one.lock("import"):
        waiting = asyncio.create_task(second())
        with pytest.raises(Occupied):
            async with other.lock("import", wait=0.05):
                raise AssertionError("two holders")
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_lock_is_renewed_for_as_long_as_its_block_runs(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    async with one.lock("import", lease_for=0.5) as lock:
        with pytest.raises(Occupied):
            async with other.lock("import", wait=1.2):
                raise AssertionError("two holders")
        assert not lock.lost


async def test_an_async_block_is_interrupted_when_its_lock_is_lost(app: Oncron) -> None:
    lock = app.lock("import", lease_for=0.5)
    with pytest.raises(LeaseLost, match="'import' was lost"):  # noqa: PT012 - the whole block is what ends
        async with lock:
            await seize(app, "import", lock.token)
            await asyncio.wait_for(asyncio.Event().wait(), 10)
    assert lock.lost
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


async def test_a_block_that_fails_after_its_lock_was_lost_says_what_failed(app: Oncron) -> None:
    lock = app.lock("import", lease_for=0.5)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the whole block is what ends
        async with lock:
            await seize(app, "import", lock.token)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 10)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None


async def test_a_task_that_is_cancelled_lets_go_of_its_lock(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    inside = asyncio.Event()

    async def hold() -> None:
        async with one.lock("import"):
            inside.set()
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await inside.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    async with other.lock("import"):
        pass


async def test_a_task_that_is_cancelled_while_it_enters_leaves_the_lock_free(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    async with one.lock("import"), other.lock("other"):
        pass  # the stores are open: from here on entering is one call
    for turns in range(60):
        entering = asyncio.create_task(one.lock(f"import {turns}").__aenter__())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.to_thread(threading.Event().wait, turns * 0.0001)
        entering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await entering).__aexit__(None, None, None)
    for turns in range(60):
        async with other.lock(f"import {turns}", wait=5):
            pass


async def test_somebody_who_stops_waiting_holds_nothing(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    async with one.lock("import"):
        waiting = asyncio.create_task(other.lock("import", wait=None).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with one.lock("import", wait=5):
        pass


async def test_whoever_stops_waiting_at_any_moment_holds_nothing_and_is_in_nobodys_way(
    replica: Callable[[], Oncron],
) -> None:
    one, other = replica(), replica()

    async def hold(app: Oncron) -> None:
        async with app.lock("import", wait=None, lease_for=60):
            await asyncio.to_thread(threading.Event().wait, 0.002)

    for turn in range(30):
        crowd = [asyncio.create_task(hold(app)) for app in (one, other, one)]
        await asyncio.to_thread(threading.Event().wait, turn * 0.0007)
        for each in crowd:
            each.cancel()
        await asyncio.wait(crowd)
    await asyncio.wait_for(one.stats(), 5)
    async with other.lock("import", wait=5):
        pass


def test_sync_code_holds_a_lock_too(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    with one.lock("import") as lock:
        assert not lock.lost
        with pytest.raises(Occupied), other.lock("import"):
            raise AssertionError("two holders")
    with other.lock("import") as later:
        assert later.token > lock.token


def test_a_sync_block_whose_lock_was_lost_ends_with_an_error(app: Oncron) -> None:
    lock = app.lock("import", lease_for=0.5)
    told: list[bool] = []
    pause = threading.Event()  # of a thread that works and looks now and then

    def work() -> None:
        with lock:
            app.sync(seize(app, "import", lock.token))
            for _ in range(1000):
                if lock.lost:
                    told.append(True)
                    return
                pause.wait(0.01)

    with pytest.raises(LeaseLost):
        work()
    assert told == [True]


async def test_there_is_one_leader_and_its_block_ends_when_it_is_no_longer(replica: Callable[[], Oncron]) -> None:
    one, other = replica(), replica()
    led: list[str] = []
    leads, may_end = asyncio.Event(), asyncio.Event()

    async def lead(app: Oncron, name: str) -> None:
        async with app.lead("indexer"):
            led.append(name)
            leads.set()
            await may_end.wait()

    first = asyncio.create_task(lead(one, "one"))
    await leads.wait()
    second = asyncio.create_task(lead(other, "other"))
    await asyncio.sleep(0)
    assert led == ["one"]
    may_end.set()
    await asyncio.gather(first, second)
    assert led == ["one", "other"]


async def test_a_leader_who_lost_it_goes_on_after_its_block(app: Oncron) -> None:
    leadership = app.lead("indexer")
    leadership._lease_for = 500_000  # nobody sets it: a test does not wait for a third of fifteen seconds
    async with leadership:
        await seize(app, "indexer", leadership.token)
        await asyncio.wait_for(asyncio.Event().wait(), 10)
    assert leadership.lost


async def test_one_lock_object_is_for_one_block_at_a_time(app: Oncron) -> None:
    lock = app.lock("import")
    async with lock:
        with pytest.raises(DefinitionError, match="held by this very object"):
            async with lock:
                raise AssertionError("entered twice")
    async with lock:
        pass


async def test_a_lock_whose_app_is_stopped_is_lost(app: Oncron) -> None:
    with pytest.raises(LeaseLost):  # noqa: PT012 - the whole block is what ends
        async with app.lock("import"):
            async with app:
                pass
            await asyncio.wait_for(asyncio.Event().wait(), 10)


@pytest.mark.parametrize(
    ("name", "options", "mend"),
    [
        ("", {}, "1 to 200"),
        ("a", {"lease_for": 0}, "at least 0.5 s"),
        ("a", {"lease_for": "15"}, "a timedelta or a number of seconds"),
        ("a", {"wait": -1}, "not negative"),
    ],
)
def test_a_lock_that_cannot_be_is_refused_where_it_is_asked_for(
    name: str, options: dict[str, object], mend: str
) -> None:
    with pytest.raises(InvalidOption, match=mend):
        Oncron("memory://").lock(name, **options)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="enter its block first"):
        _ = Oncron("memory://").lock("a").token
