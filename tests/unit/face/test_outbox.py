"""What one run may enqueue is bounded: it has to fit into the one step that ends the run."""

from __future__ import annotations

from collections.abc import Callable

from oncron import Oncron, RunContext
from oncron.errors import InvalidArguments


async def taken(add: Callable[[RunContext], None]) -> tuple[int, str]:
    """How many were taken before the complaint."""
    app = Oncron("memory://")

    @app.task
    async def many(ctx: RunContext) -> tuple[int, str]:
        for n in range(20_000):
            try:
                add(ctx)
            except InvalidArguments as error:
                return n, str(error)
        return 20_000, ""

    async with app:
        return tuple(await (await many.enqueue()).wait(30))  # type: ignore[return-value]


async def test_more_than_ten_thousand_runs_in_one_outbox_are_refused() -> None:
    other = Oncron("memory://")

    @other.task(queue="nobody")
    async def child(text: str) -> None: ...

    count, said = await taken(lambda ctx: ctx.enqueue(child, ""))
    assert count == 10_000
    assert "10000 runs" in said


async def test_an_outbox_of_more_than_four_mebibytes_is_refused() -> None:
    other = Oncron("memory://")

    @other.task(queue="nobody")
    async def child(text: str) -> None: ...

    count, said = await taken(lambda ctx: ctx.enqueue(child, "x" * 100_000))
    assert count == 41
    assert "4 MiB" in said
