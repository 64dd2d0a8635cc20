from __future__ import annotations

from _peer import AT_ONCE, STORE, TICKS, mark, play

from oncron import Oncron, every

app = Oncron(STORE, namespace="bench", concurrency=AT_ONCE)


@app.task
async def nothing() -> None:
    mark()


if TICKS:

    @app.schedule(every(seconds=1))
    async def tick() -> None:
        mark()


async def setup() -> None:
    await app.migrate()


async def enqueue(count: int) -> None:
    for at in range(0, count, 1000):
        await nothing.enqueue_many({} for _ in range(min(1000, count - at)))


if __name__ == "__main__":
    play(setup=setup, enqueue=enqueue, work=app.run, tick=app.run)
