from __future__ import annotations

import procrastinate
from _peer import AT_ONCE, STORE, TICKS, mark, play

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=STORE, min_size=4, max_size=20))


@app.task(name="nothing", queue="jobs")
async def nothing() -> None:
    mark()


if TICKS:

    @app.periodic(cron="* * * * * *")
    @app.task(name="tick", queue="jobs")
    async def tick(timestamp: int) -> None:
        mark()


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(count: int) -> None:
    async with app.open_async():
        for at in range(0, count, 1000):
            await nothing.batch_defer_async(*({} for _ in range(min(1000, count - at))))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(queues=["jobs"], concurrency=AT_ONCE, wait=True)


if __name__ == "__main__":
    play(setup=setup, enqueue=enqueue, work=work, tick=work)
