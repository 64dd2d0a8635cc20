from __future__ import annotations

from _peer import AT_ONCE, STORE, TICKS, mark, play
from chancy import Chancy, Queue, Worker, job
from chancy.plugins.cron import Cron
from chancy.plugins.leadership import Leadership

QUEUE = Queue("default", concurrency=AT_ONCE, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True)
# Its own default looks for due schedules once a minute.
PLUGINS = [Leadership(), Cron(poll_interval=1)] if TICKS else []


@job(queue="default")
async def nothing() -> None:
    mark()


@job(queue="default")
async def tick() -> None:
    mark()


async def setup() -> None:
    async with Chancy(STORE, plugins=[Leadership(), Cron(poll_interval=1)]) as chancy:
        await chancy.migrate()
        await chancy.declare(QUEUE)


async def enqueue(count: int) -> None:
    async with Chancy(STORE) as chancy:
        async for _ in chancy.push_many([nothing.job] * count, batch_size=1000):
            pass


async def work() -> None:
    async with Chancy(STORE, plugins=PLUGINS) as chancy:
        if TICKS:
            await Cron.schedule(chancy, "* * * * * *", tick.job.with_unique_key("tick"))
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    play(setup=setup, enqueue=enqueue, work=work, tick=work)
