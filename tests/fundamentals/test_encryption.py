"""Arguments, results and checkpoints that nobody can read who sees the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from oncron import Oncron, RunContext, every
from oncron._cipher import keyring
from oncron.errors import RunFailed, WrongKey
from tests.fundamentals import heavy

Replica = Callable[[], Oncron]

OLD = {"2025": "11" * 32}
NEW = {"2026": "22" * 32} | OLD
FAST = every(seconds=0.2)


@pytest.fixture
def replica_with(replica: Replica) -> Callable[..., Oncron]:
    """`replica_with(keys)`: one more replica on this test's store."""

    def make(keys: dict[str, Any] | None) -> Oncron:
        app = replica()
        app._keys = keyring(keys)
        return app

    return make


def declare(app: Oncron) -> Any:
    @app.task(retries=0)
    async def pay(card: str) -> str:
        return f"paid by {card}"

    return pay


async def test_S05_arguments_lie_encrypted_in_the_store(replica_with: Callable[..., Oncron]) -> None:
    app, outsider = replica_with(OLD), replica_with(None)
    pay = declare(app)
    run = await pay.enqueue(card="4111-1111")
    seen = await outsider.get_run(run.id)
    assert seen.record.args.startswith('"$encrypted:1:2025:')
    with pytest.raises(WrongKey, match=r"the arguments of run .*: encrypted with key '2025', which is not given here"):
        assert seen.args
    assert (await app.get_run(run.id)).args == {"card": "4111-1111"}
    async with app:
        assert await run.wait(10) == "paid by 4111-1111"
    record = (await outsider.get_run(run.id)).record
    assert "4111" not in str(record)
    with pytest.raises(WrongKey, match="the result of run"):
        assert (await outsider.get_run(run.id)).result


async def test_S05_a_schedules_arguments_are_encrypted_too_and_go_over_into_its_runs(
    replica_with: Callable[..., Oncron],
) -> None:
    app, outsider = replica_with(OLD), replica_with(None)
    paid: asyncio.Queue[str] = asyncio.Queue()

    @app.schedule(FAST, args={"card": "4111-1111"}, limit=1, overlap="allow")
    async def pay(card: str) -> None:
        paid.put_nowait(card)

    async with app:
        assert await asyncio.wait_for(paid.get(), 15) == "4111-1111"
        await app.fire("pay")
        assert await asyncio.wait_for(paid.get(), 15) == "4111-1111"
    schedule = await outsider.get_schedule("pay")
    assert "4111" not in str(schedule.record)
    assert "4111" not in str([run.record for run in await outsider.runs(schedule="pay")])
    assert (await app.get_schedule("pay")).args == {"card": "4111-1111"}


async def test_S05_keys_are_rotated_the_first_encrypts_and_all_decrypt(replica_with: Callable[..., Oncron]) -> None:
    before, after, outsider = replica_with(OLD), replica_with(NEW), replica_with(None)
    declare(before)
    old = await before.enqueue("pay", args={"card": "old"})
    pay = declare(after)
    new = await pay.enqueue(card="new")
    assert ":2025:" in (await outsider.get_run(old.id)).record.args
    assert ":2026:" in (await outsider.get_run(new.id)).record.args
    async with after:
        assert await (await after.get_run(old.id)).wait(10) == "paid by old"
        assert await new.wait(10) == "paid by new"


@pytest.mark.parametrize("keys", [None, {"other": "33" * 32}, {"2025": "33" * 32}], ids=["none", "missing", "wrong"])
async def test_S05_without_the_key_a_run_is_left_pending_and_says_why(
    replica_with: Callable[..., Oncron], keys: dict[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """No attempt is spent, however often: whoever has the key executes it, at most once as it was asked for."""
    app, keyless = replica_with(OLD), replica_with(keys)
    pay, _ = declare(app), declare(keyless)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()
    keyless.on("run.released")(lambda event: loop.call_soon_threadsafe(released.set))
    run = await pay.enqueue(card="4111-1111")
    with caplog.at_level(logging.ERROR, "oncron.run"):
        async with keyless:
            await asyncio.wait_for(released.wait(), 15)
    seen = await keyless.get_run(run.id)
    assert (seen.state, seen.record.attempts_spent) == ("pending", 0)
    assert seen.reason is not None
    assert "encrypted with key '2025', which this replica was not given" in seen.reason
    assert "add it: Oncron(..., encryption=" in caplog.text
    assert "4111" not in caplog.text


async def test_a_replica_without_the_key_leaves_an_encrypted_schedule_as_it_is(
    replica_with: Callable[..., Oncron], caplog: pytest.LogCaptureFixture
) -> None:
    app, keyless = replica_with(OLD), replica_with(None)
    for one in (app, keyless):
        pay = declare(one)
        one.add_schedule("payment", every(hours=1), pay, args={"card": "4111-1111"})
    async with app:
        pass
    before = (await keyless.get_schedule("payment")).record
    async with keyless:
        pass
    assert (await keyless.get_schedule("payment")).record == before
    assert "schedule 'payment' is stored encrypted with key '2025'" in caplog.text
    await keyless.pause("payment", note="by whoever")
    await keyless.resume("payment")
    assert (await app.get_schedule("payment")).args == {"card": "4111-1111"}


async def test_many_runs_outboxes_checkpoints_and_logs_are_encrypted(replica_with: Callable[..., Oncron]) -> None:
    app, outsider = replica_with(OLD), replica_with(None)

    @app.task
    async def mail(to: str) -> str:
        return to

    @app.task
    async def fan_out(ctx: RunContext, to: str) -> list[int]:
        ctx.log.info("to %s", to)
        for number in (walk := ctx.walk([4111, 4112], max_items=1)):
            ctx.checkpoint([to, number])
        ctx.enqueue(mail, to=to)
        return [walk.goes]

    async with app:
        first, second = await mail.enqueue_many([{"to": "ada-4111"}, {"to": "bob-4111"}])
        assert (await first.wait(10), await second.wait(10)) == ("ada-4111", "bob-4111")
        assert await (await fan_out.enqueue("cyd-4111")).wait(10) == [2]
        while len(runs := await app.runs(task="mail")) < 3:
            pass
        assert await runs[0].wait(10) == "cyd-4111"
        (fanned,) = await app.runs(task="fan_out")
        assert "INFO to cyd-4111" in (fanned.log or "")
        with pytest.raises(WrongKey, match="the log of run"):
            print((await outsider.get_run(fanned.id)).log)
    assert "4111" not in str([run.record for run in await outsider.runs()])


async def test_s55_runs_of_a_batch_are_encrypted_as_others_are(replica_with: Callable[..., Oncron]) -> None:
    """Senna refuses that."""
    app, outsider = replica_with(OLD), replica_with(None)
    pay = declare(app)
    async with app:
        async with app.batch() as batch:
            batch.add(pay, "4111-1111")
        assert (await batch.wait(10)).succeeded == 1
    (run,) = await outsider.runs(batch=batch.id)
    assert "4111" not in str(run.record)


async def test_a_process_gets_its_arguments_and_checkpoints_readable(replica_with: Callable[..., Oncron]) -> None:
    app, outsider = replica_with(OLD), replica_with(None)
    walk = app.task(heavy.walk_letters, executor="process")
    async with app:
        run = await walk.enqueue(of="4111")
        assert await run.wait(60) == "4111"
    assert "4111" not in str((await outsider.get_run(run.id)).record)


async def test_what_was_stored_before_there_was_a_key_is_still_read(replica_with: Callable[..., Oncron]) -> None:
    before, after = replica_with(None), replica_with(OLD)
    declare(before)
    run = await before.enqueue("pay", args={"card": "1"})
    declare(after)
    async with after:
        assert await (await after.get_run(run.id)).wait(10) == "paid by 1"


async def test_arguments_moved_to_another_task_do_not_open(replica_with: Callable[..., Oncron]) -> None:
    """They are bound to their task, so that whoever can write to the store cannot have them spent elsewhere."""
    keys = keyring(OLD)
    assert keys is not None
    shut = keys.encrypt('{"card":"1"}', "oncron args of task pay")
    assert keys.decrypt(shut, "oncron args of task pay") == '{"card":"1"}'
    assert keys.decrypt(shut, "oncron args of task show") == shut


async def test_a_failed_run_tells_its_error_as_it_is(replica_with: Callable[..., Oncron]) -> None:
    """Errors, reasons, progress and unique keys are for operators: they are stored in the clear."""
    app, outsider = replica_with(OLD), replica_with(None)

    @app.task(retries=0)
    async def broken(card: str) -> None:
        raise ValueError("declined")

    async with app:
        run = await broken.enqueue("4111")
        with pytest.raises(RunFailed, match="declined"):
            await run.wait(10)
    assert "declined" in ((await outsider.get_run(run.id)).error or "")


async def test_whoever_has_no_key_may_run_a_schedule_now_and_retry_what_failed(
    replica_with: Callable[..., Oncron],
) -> None:
    """Neither needs to read the arguments: an operator at the store alone."""
    app, outsider = replica_with(OLD), replica_with(None)
    paid: list[str] = []

    @app.task(retries=0)
    async def pay(card: str) -> None:
        paid.append(card)
        if len(paid) == 1:
            raise OSError("declined")

    app.add_schedule("payment", every(hours=1), pay, args={"card": "4111"})
    async with app:
        run = await outsider.fire("payment")
        with pytest.raises(RunFailed, match="declined"):
            await (await app.get_run(run.id)).wait(15)
        await outsider.retry(run.id)
        await (await app.get_run(run.id)).wait(15)
    assert paid == ["4111", "4111"]
