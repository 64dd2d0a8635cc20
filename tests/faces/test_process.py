"""An app in a process of its own: signals, exit codes, and threads that do not return."""

from __future__ import annotations

import signal

import pytest

from oncron import Oncron
from tests.faces.script import Start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_what_runs_end_and_run_returns_b147(
    start: Start, reader: Oncron, number: signal.Signals
) -> None:
    process = start(
        """
        @app.schedule(every(seconds=0.2))
        async def job():
            say("started")
            await asyncio.sleep(1)
        app.run()
        say("returned")
        """
    )
    process.hear("started")
    process.tell(number)
    assert process.ends(within=8) == (0, "returned\n")
    assert {run.state for run in reader.sync(reader.runs())} == {"succeeded"}
    assert reader.sync(reader.stats()).workers == ()


def test_an_idle_app_stops_at_once(start: Start) -> None:
    process = start(
        """
        @app.on("worker.started")
        def told(event):
            say("up")
        app.run()
        """
    )
    process.hear("up")
    process.tell(signal.SIGTERM)
    assert process.ends(within=4) == (0, "")


def test_the_second_signal_waits_no_longer_and_gives_back_what_has_stopped(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        async def job(ctx: RunContext):
            say("started")
            try:
                while not ctx.stopping:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.6)
                say("told once")
                await asyncio.sleep(60)
            finally:
                say("cancelled")
        job.enqueue_sync()
        app.run()
        say("returned")
        """,
        stop_within=60,
    )
    process.hear("started")
    process.tell(signal.SIGTERM)
    process.hear("told once")
    assert "SIGTERM: stopping; once more to stop at once" in process.errors()
    process.tell(signal.SIGTERM)
    code, said = process.ends(within=8)
    assert (code, said.splitlines()[-2:]) == (0, ["cancelled", "returned"])
    (run,) = reader.sync(reader.runs())
    assert (run.state, run.record.attempts_spent) == ("pending", 0)


def test_a_signal_that_comes_twice_at_once_is_one_signal(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        async def job():
            say("started")
            await asyncio.sleep(1)
        job.enqueue_sync()
        app.run()
        say("returned")
        """
    )
    process.hear("started")
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        process.tell(number)
    assert process.ends(within=8) == (0, "returned\n")
    assert [run.state for run in reader.sync(reader.runs())] == ["succeeded"]


def test_a_thread_that_does_not_return_cannot_keep_the_process(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        def stuck():
            say("started")
            threading.Event().wait()
        @app.task
        async def other():
            say("other")
            await asyncio.sleep(60)
        stuck.enqueue_sync()
        other.enqueue_sync()
        app.run()
        say("never said")
        """,
        stop_within=0.2,
    )
    process.hear("other")
    process.tell(signal.SIGTERM)
    code, said = process.ends(within=12)
    assert code == 0
    assert "never said" not in said
    assert "a thread still runs 'stuck'" in process.errors()
    states = {run.task: run.state for run in reader.sync(reader.runs())}
    assert states == {"stuck": "running", "other": "pending"}


def test_nor_can_a_thread_that_an_async_task_made(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        async def job():
            say("started")
            await asyncio.to_thread(threading.Event().wait)
        job.enqueue_sync()
        app.run()
        say("never said")
        """,
        stop_within=0.1,
    )
    process.hear("started")
    process.tell(signal.SIGTERM)
    assert process.ends(within=12) == (0, "")
    assert "threads made by tasks do not return" in process.errors()
    (run,) = reader.sync(reader.runs())
    assert run.state == "pending"


def test_leaving_a_with_block_ends_the_process_without_a_word(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        async def job():
            return 1
        with app:
            run = job.enqueue_sync()
            say(app.sync(run.wait(10)))
        """
    )
    assert process.ends(within=15) == (0, "1\n")
    assert "Traceback" not in process.errors()


def test_a_script_that_only_enqueues_leaves_cleanly(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        def job(n: int): ...
        job.enqueue_sync(1)
        """
    )
    assert process.ends(within=15) == (0, "")
    assert process.errors() == ""
    assert [run.args for run in reader.sync(reader.runs())] == [{"n": 1}]


def test_a_process_that_ends_without_stopping_gives_back_what_it_holds(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        async def job():
            say("started")
            await asyncio.sleep(60)
        async def main():
            await app.start()
            await job.enqueue()
            await asyncio.sleep(1)
        asyncio.run(main())
        """
    )
    process.hear("started")
    assert process.ends(within=15)[0] == 0
    (run,) = reader.sync(reader.runs())
    assert run.state == "pending"
    assert "Traceback" not in process.errors()
