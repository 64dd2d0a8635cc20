"""It has no schedules by the second: its ticks are left out."""

from __future__ import annotations

import sys

from _peer import address, mark, play
from huey import RedisHuey
from huey.consumer import Consumer

host, port = address()
huey = RedisHuey("bench", host=host, port=port, results=False)


@huey.task()
def nothing() -> None:
    mark()


def enqueue(count: int) -> None:
    for _ in range(count):
        nothing()


def work() -> None:
    sys.argv = sys.argv[:1]
    Consumer(huey, workers=4, worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    play(enqueue=enqueue, work=work)
