"""A worker and a beat for each replica: the scheduler that comes with Celery, without redbeat."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from _peer import STORE, mark, play
from celery import Celery

app = Celery("with_celery", broker=STORE)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=16,
    broker_connection_retry_on_startup=True,
    beat_schedule={"tick": {"task": "nothing", "schedule": 1.0}},
)


@app.task(name="nothing", ignore_result=True)
def nothing() -> None:
    mark()


def enqueue(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            nothing.apply_async(producer=producer)


def run(*arguments: str) -> None:
    os.execv(Path(sys.executable).with_name("celery"), ["celery", "-A", "with_celery", *arguments, "-l", "ERROR"])


def work() -> None:
    run("worker", "-P", "prefork", "-c", "2", "--without-gossip", "--without-mingle")


def tick() -> None:
    if os.fork() == 0:
        run("worker", "-P", "threads", "-c", "4", "-n", f"{os.getpid()}@bench")
    run("beat", "-s", f"{os.environ['BENCH_MARKS']}.{os.getpid()}.beat")


if __name__ == "__main__":
    play(enqueue=enqueue, work=work, tick=tick)
