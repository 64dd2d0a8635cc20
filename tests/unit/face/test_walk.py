"""What ctx.walk takes, and what it says to what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from oncron import Interrupted, RunContext
from oncron._engine.spec import Execution
from oncron._lifecycle import judge, with_headway
from oncron._model import OutcomeKind, RunRecord
from oncron._walk import walked
from oncron.errors import DefinitionError, InvalidArguments, InvalidOption


def context(checkpoint: str | None = None, **run: Any) -> RunContext[Any]:
    record = RunRecord(**({"id": "r", "task": "job", "checkpoint": checkpoint} | run))
    return RunContext(Execution(run=record, store_now=lambda: 0), {}, None)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (iter([1]), "a list_iterator: an iterator cannot begin in the middle; give a sequence, or a function"),
        ("text", r"ctx.walk\(\) of a str; give a sequence"),
        ({1, 2}, r"ctx.walk\(\) of a set; give a sequence"),
        (5, r"ctx.walk\(\) of a int; give a sequence"),
    ],
)
def test_a_source_that_cannot_go_on_is_refused(source: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        context().walk(source)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"every": -1}, "every=-1 must be not negative"),
        ({"max_items": 0}, "max_items=0: give a number from 1"),
        ({"name": 5}, "name=5: give a text"),
    ],
)
def test_an_option_that_a_walk_cannot_have_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        context().walk([1], **options)


def test_two_walks_of_one_name_are_refused() -> None:
    ctx = context()
    ctx.walk([1])
    with pytest.raises(DefinitionError, match="give each walk a name= of its own"):
        ctx.walk([2])


async def not_yielding(cursor: Any) -> None: ...


async def asynchronous(cursor: Any) -> Any:
    yield 1, "item"


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (lambda cursor: None, DefinitionError, "its source answered a NoneType; give a sequence"),
        (not_yielding, DefinitionError, "its source answered a coroutine"),
        (lambda cursor: ["item"], DefinitionError, r"its source yields 'item'; give a sequence, or a function"),
        (lambda cursor: [(object(), "item")], InvalidArguments, "walk: the cursor <object object"),
        (lambda cursor: [("x" * 70_000, "item")], InvalidArguments, r"the cursor of ctx.walk\(\), .* takes 70,"),
        (asynchronous, DefinitionError, "has an async source; write `async for item in"),
    ],
)
def test_what_a_source_gets_wrong_is_told_when_it_is_walked(
    source: Callable[[Any], Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        list(context().walk(source))


def test_a_sequence_does_not_go_on_where_another_kind_of_source_has_stopped() -> None:
    with pytest.raises(DefinitionError, match="an earlier go has left the cursor 'ada' of another source"):
        list(context('{"$walks":{"":{"cursor":"ada","items":1,"goes":1}}}').walk([1]))


def test_a_source_is_closed_when_the_walk_is_interrupted() -> None:
    closed: list[str] = []

    def source(cursor: int | None) -> Any:
        try:
            yield 1, "one"
            yield 2, "two"
        finally:
            closed.append("sync")

    async def async_source(cursor: int | None) -> Any:
        try:
            yield 1, "one"
            yield 2, "two"
        finally:
            closed.append("async")

    async def walk() -> None:
        async for _ in context().walk(async_source, max_items=1):
            pass

    with pytest.raises(Interrupted):
        list(context().walk(source, max_items=1))
    with pytest.raises(Interrupted):
        asyncio.run(walk())
    assert closed == ["sync", "async"]


def test_a_checkpoint_of_the_task_survives_beside_the_cursors_whatever_it_looks_like() -> None:
    ctx = context()
    ctx.checkpoint({"$walks": "mine"})
    again = context(ctx._execution.checkpoint)
    assert again.last_checkpoint == {"$walks": "mine"}
    assert list(again.walk([1, 2])) == [1, 2]
    assert context(again._execution.checkpoint).last_checkpoint == {"$walks": "mine"}


@given(
    items=st.lists(st.integers(), max_size=12),
    goes=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["stop", "error", "max"])), max_size=12),
)
def test_every_item_is_done_once_however_the_goes_end(items: list[int], goes: list[tuple[int, str]]) -> None:
    """Where nothing dies: an error gives its item again, everything else goes on after the last one."""
    kept: str | None = None
    done: list[int] = []
    for most, how in [*goes, (100, "max")]:
        ctx = context(kept)
        try:
            for item in ctx.walk(items, max_items=most if how == "max" else None):
                if how == "error" and len(done) % most == 0:
                    int("an error")
                done.append(item)
                if how == "stop" and len(done) >= most:
                    ctx._execution.stop.set()
        except (Interrupted, ValueError):
            pass
        kept = ctx._execution.checkpoint or kept
        assert context(kept).walk(items).items == len(done)
    assert done == items


def test_how_far_a_walk_is_is_told_in_words() -> None:
    ctx = context()
    assert list(ctx.walk([1], name="users")) == [1]
    for _ in ctx.walk([1, 2, 3], name="orders"):
        if ctx._execution.checkpoint and '"items":2' in ctx._execution.checkpoint:
            break
    assert walked(ctx._execution.checkpoint) == "users: 1 item in 1 go, all of them; orders: 2 items in 1 go"
    assert walked('{"page":7}') is None
    assert walked(None) is None


def test_an_interruption_spends_no_attempt_if_it_brings_a_new_checkpoint() -> None:
    run = RunRecord(id="r", task="job", retries=0, attempt=1, checkpoint="1")
    outcome = judge(run, Interrupted("later"))
    assert (outcome.kind, outcome.reason) == (OutcomeKind.RELEASED, "later")
    further = with_headway(run, msgspec.structs.replace(outcome, checkpoint="2"))
    assert (further.kind, further.spend_attempt, further.error) == (OutcomeKind.RETRY, False, None)
    assert with_headway(run, msgspec.structs.replace(outcome, checkpoint="1")).kind is OutcomeKind.RELEASED


def test_an_interruption_inside_of_a_task_group_is_one() -> None:
    run = RunRecord(id="r", task="job", attempt=1)
    group = BaseExceptionGroup("unhandled", [Interrupted("later")])
    assert judge(run, group).kind is OutcomeKind.RELEASED
    mixed = BaseExceptionGroup("unhandled", [Interrupted("later"), ValueError("no")])
    assert judge(run, mixed, retry_on=BaseException).kind is OutcomeKind.RETRY
