"""What each replica of `oncron demo` runs: schedules of 200 ms and of one second, whose tasks write the ledger.

Where, and which replica this is, comes from the environment. All schedules start paused: the
demo resumes them when every replica is there.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Literal

from oncron import Oncron, RunContext, every
from oncron._clock import SECOND, from_us, sleep_us
from oncron.cli.demo_replicas import BEATS
from oncron.cli.ledger import Line, write

LEASE_FOR = 2.0
SLOW_FOR = 600_000
"""How long the slow task takes (microseconds): the replica that is killed holds one."""

_ledger = os.open(os.environ["ONCRON_DEMO_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_me = os.environ["ONCRON_DEMO_REPLICA"]

app = Oncron(
    os.environ["ONCRON_DEMO_STORE"],
    namespace=os.environ["ONCRON_DEMO_NAMESPACE"],
    lease_for=LEASE_FOR,
    defaults={"overlap": "allow", "missed": "all", "missed_limit": 10_000, "paused": True},
)


def _say(ctx: RunContext, what: Literal["start", "end"]) -> None:
    execution = ctx._execution  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the store's clock, to the microsecond
    run = execution.run
    line = Line(
        schedule=run.schedule or "",
        tick=run.tick or 0,
        run=run.id,
        attempt=run.attempt,
        token=run.token,
        what=what,
        worker=_me,
        at=execution.store_now(),
    )
    os.write(_ledger, write(line))


@app.task
async def fast(ctx: RunContext) -> None:
    _say(ctx, "start")
    _say(ctx, "end")


@app.task
async def slow(ctx: RunContext) -> None:
    _say(ctx, "start")
    await sleep_us(SLOW_FOR)
    _say(ctx, "end")


for _name, _beat in BEATS.items():
    _trigger = every(seconds=_beat.every / SECOND, anchor=from_us(_beat.offset))
    app.add_schedule(_name, _trigger, slow if _name == "slow" else fast)


def _end_with_the_demo() -> None:
    """The demo holds the other end of stdin: when it is gone, however it went, so is this replica."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=_end_with_the_demo, name="oncron-demo-end", daemon=True).start()
