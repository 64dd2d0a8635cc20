"""What the replicas of the bank execute: `oncron run tests.fault.bank:app`. Money moves in transactions of tasks.

Nothing but those protects it: there is no key that would refuse a second booking, so one would show.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

from oncron import Oncron, RunContext, backoff

URL = os.environ["ONCRON_STORE"]
MARK = "?" if URL.startswith("sqlite") else "%s"
MOVE = f"update accounts set balance = balance + {MARK} where id = {MARK}"
BOOK = f"insert into bookings (run, attempt) values ({MARK}, {MARK})"

app = Oncron(lease_for=float(os.environ.get("FAULT_LEASE", "2")), concurrency=8)


def moves(source: int, target: int, amount: int) -> list[tuple[int, int]]:
    """By account, so that two transfers cannot wait for one another."""
    return sorted([(-amount, source), (amount, target)], key=lambda change: change[1])


@app.task
async def receipt(run: str) -> None: ...


@app.task(retries=1000, backoff=backoff.fixed(0.05))
def transfer(ctx: RunContext, source: int, target: int, amount: int) -> None:
    ctx.enqueue(receipt, ctx.run_id)
    with ctx.transaction() as connection:
        for change in moves(source, target, amount):
            connection.execute(MOVE, change)
            time.sleep(random.uniform(0, 0.01))
        connection.execute(BOOK, (ctx.run_id, ctx.attempt))


@app.task(retries=1000, backoff=backoff.fixed(0.05))
async def transfer_async(ctx: RunContext, source: int, target: int, amount: int) -> None:
    ctx.enqueue(receipt, ctx.run_id)
    async with ctx.transaction() as connection:
        for change in moves(source, target, amount):
            await connection.execute(MOVE, change)
            await asyncio.sleep(random.uniform(0, 0.01))
        await connection.execute(BOOK, (ctx.run_id, ctx.attempt))
