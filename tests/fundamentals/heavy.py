"""Functions for worker processes, which import them from here."""

from __future__ import annotations

import os
import re
import threading

from oncron import RunContext


def count_primes(below: int) -> int:
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, below))


def match_for_ever() -> None:
    """A pattern that takes longer than the universe has; no other thread of the process gets to run."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def crash_once(ctx: RunContext) -> str:
    if ctx.attempt == 1:
        os.abort()
    return f"attempt {ctx.attempt}"


def resume(ctx: RunContext) -> list[int]:
    done: list[int] = ctx.last_checkpoint or []
    for page in range(len(done), 4):
        if page == 2 and ctx.attempt == 1:
            os._exit(1)
        done.append(page)
        ctx.checkpoint(done)
        ctx.progress(page + 1, 4)
    return done


def refuse() -> None:
    raise ValueError("no")


def walk(ctx: RunContext) -> list[int]:
    walk = ctx.walk(range(6), every=0, max_items=2)
    for number in walk:
        if number == 3 and walk.goes == 2:
            threading.Event().wait(0.1)  # what was said last has left the process after 20 ms
            os._exit(1)
    return [walk.goes, walk.items]


def walk_letters(ctx: RunContext, of: str) -> str:
    for letter in ctx.walk(list(of), every=0, max_items=1):
        ctx.checkpoint((ctx.last_checkpoint or "") + letter)
    found: str = ctx.last_checkpoint
    return found


def talk(ctx: RunContext, of: str) -> None:
    ctx.log.info("%d: %s", ctx.attempt, of)
    if ctx.attempt == 1:
        raise ConnectionError
