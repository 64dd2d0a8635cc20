from __future__ import annotations

import asyncpg
from _peer import AT_ONCE, STORE, TICKS, mark, play
from pgqueuer import PgQueuer, Queries


async def setup() -> None:
    connection = await asyncpg.connect(STORE)
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def enqueue(count: int) -> None:
    connection = await asyncpg.connect(STORE)
    queries = Queries.from_asyncpg_connection(connection)
    for at in range(0, count, 1000):
        size = min(1000, count - at)
        await queries.enqueue(["nothing"] * size, [None] * size, [0] * size)
    await connection.close()


async def work() -> None:
    async with asyncpg.create_pool(STORE, min_size=4, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("nothing")
        async def nothing(job: object) -> None:
            mark()

        if TICKS:

            @queuer.schedule("tick", "* * * * * *")
            async def tick(schedule: object) -> None:
                mark()

        await queuer.run(batch_size=AT_ONCE)


if __name__ == "__main__":
    play(setup=setup, enqueue=enqueue, work=work, tick=work)
