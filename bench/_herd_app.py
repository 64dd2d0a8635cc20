"""A replica of herd.py: HERD_SCHEDULES schedules that are all due at HERD_AT (microseconds). Each call of
`fire` leaves a line in HERD_CALLS: when it began and ended, and how many ticks it let pass."""

from __future__ import annotations

import os
import time

from oncron import Oncron, every
from oncron._clock import from_us
from oncron._model import FireOutcome

_calls = os.open(os.environ["HERD_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
app = Oncron()


@app.task
async def nothing() -> None:
    pass


if os.environ["ONCRON_STORE"].startswith("sqlite"):
    from oncron.stores.sqlite import SQLiteStore as Store
elif os.environ["ONCRON_STORE"].startswith("redis"):
    from oncron.stores.redis import RedisStore as Store
else:
    from oncron.stores.postgres import PostgresStore as Store
_fire = Store.fire


async def timed(self, plans, claim=None, **more):
    began = time.time_ns() // 1000
    fired = await _fire(self, plans, claim, **more)
    passed = sum(result.outcome is FireOutcome.FIRED for result in fired.results)
    os.write(_calls, f"{began} {time.time_ns() // 1000} {len(plans)} {passed}\n".encode())
    return fired


Store.fire = timed
at = from_us(int(os.environ["HERD_AT"]))
for number in range(int(os.environ["HERD_SCHEDULES"])):
    app.add_schedule(f"herd-{number:06}", every(hours=1, anchor=at), nothing, overlap="allow")
