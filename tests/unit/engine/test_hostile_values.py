"""Results and errors whose own code misbehaves while their text is made."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from oncron._engine.spec import Execution
from oncron._lifecycle import error_text, judge
from oncron._model import OutcomeKind, RunRecord, RunState
from oncron._task import result_text
from tests.unit.engine.test_threads import real, spec

WORST = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError]


class Result(dict[str, int]):
    """Cannot be shown, and cannot be walked."""

    def __init__(self, raises: type[BaseException]) -> None:
        super().__init__(a=1)
        self.raises = raises

    def items(self) -> Any:
        raise self.raises

    def __repr__(self) -> str:
        raise self.raises


def error_that_raises(raises: type[BaseException]) -> Exception:
    class Mute(Exception):
        def __str__(self) -> str:
            raise raises

        __repr__ = __str__

    return Mute()


@pytest.mark.parametrize("raises", WORST)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_result_whose_own_code_raises_anything_is_a_success_all_the_same(
    raises: type[BaseException], is_async: bool
) -> None:
    def send(_execution: Execution) -> Result:
        return Result(raises)

    async def send_async(_execution: Execution) -> Result:
        return Result(raises)

    call = send_async if is_async else send
    async with real(spec("send", call, is_async=is_async, encode=functools.partial(result_text, "send"))) as one:
        run_id = await one.enqueue(retries=0)
        await one.heard("run.succeeded", run_id)

        assert "whose repr failed" in ((await one.run_of(run_id)).result or "")


@pytest.mark.parametrize("raises", WORST)
async def test_an_encoder_that_raises_anything_does_not_undo_the_success(raises: type[BaseException]) -> None:
    def encode(_value: Any) -> str:
        raise raises

    async with real(spec("send", lambda _execution: 7, encode=encode)) as one:
        run_id = await one.enqueue(retries=0)
        await one.heard("run.succeeded", run_id)

        assert (await one.run_of(run_id)).state is RunState.SUCCEEDED


@pytest.mark.parametrize("raises", WORST)
async def test_arguments_whose_type_raises_anything_while_they_are_decoded_end_the_run(
    raises: type[BaseException],
) -> None:
    def prepare(_execution: Execution) -> Any:
        raise raises

    async with real(spec("send", lambda _execution: 7, prepare=prepare)) as one:
        run_id = await one.enqueue(retries=0)
        await one.heard("run.failed", run_id)

        assert raises.__name__ in ((await one.run_of(run_id)).error or "")


@pytest.mark.parametrize("raises", WORST)
async def test_an_error_that_cannot_be_shown_is_judged_like_any_other(raises: type[BaseException]) -> None:
    error = error_that_raises(raises)

    def send(_execution: Execution) -> None:
        raise error

    assert "Mute" in error_text(error)
    run = RunRecord(id="r", task="send", attempt=1, retries=1)
    assert judge(run, error).kind is OutcomeKind.RETRY
    async with real(spec("send", send)) as one:
        run_id = await one.enqueue(retries=0)
        await one.heard("run.failed", run_id)

        assert (await one.run_of(run_id)).reason == "Mute: (its text could not be made)"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_result_is_made_text_where_the_task_ran_and_not_on_the_engines_loop(is_async: bool) -> None:
    where: list[str] = []

    def send(_execution: Execution) -> int:
        where.append(threading.current_thread().name)
        return 7

    async def send_async(execution: Execution) -> int:
        return send(execution)

    def encode(value: int) -> str:
        where.append(threading.current_thread().name)
        return str(value)

    async with real(spec("send", send_async if is_async else send, is_async=is_async, encode=encode)) as one:
        await one.heard("run.succeeded", await one.enqueue())

    assert where[0] == where[1]
