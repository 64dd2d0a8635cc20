from __future__ import annotations

from _peer import AT_ONCE, address, mark, play
from arq import create_pool, cron
from arq.connections import RedisSettings
from arq.worker import Worker

host, port = address()
SETTINGS = RedisSettings(host=host, port=port)


async def nothing(ctx: object) -> None:
    mark()


async def tick(ctx: object) -> None:
    mark()


async def enqueue(count: int) -> None:
    pool = await create_pool(SETTINGS)
    for _ in range(count):
        await pool.enqueue_job("nothing")


def work() -> None:
    Worker([nothing], redis_settings=SETTINGS, max_jobs=AT_ONCE, keep_result=0, log_results=False).run()


def ticks() -> None:
    # Its defaults wait until 0.12 s past the second, and look twice a second.
    every_second = cron(tick, unique=True, second=set(range(60)), microsecond=0)
    Worker([nothing], cron_jobs=[every_second], redis_settings=SETTINGS, poll_delay=0.1).run()


if __name__ == "__main__":
    play(enqueue=enqueue, work=work, tick=ticks)
