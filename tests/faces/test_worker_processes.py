"""executor="process" in a real replica: scripts, signals, and replicas that are killed."""

from __future__ import annotations

import json
import os
import select
import signal

import pytest

from oncron import Oncron
from tests.faces.script import Start


class Watch:
    """Of a process that is not ours."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def ends(self, within: float) -> bool:
        try:
            return bool(select.select([self._fd], [], [], within)[0])
        finally:
            os.close(self._fd)


def test_a_function_of_the_started_script_is_found_again(start: Start, reader: Oncron) -> None:
    process = start(
        """
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: int
        class Odd(Exception): ...
        @app.task(executor="process")
        def job(point: Point) -> str:
            return f"{__name__} {point.x}"
        @app.task(executor="process", retry_on=Odd, retries=1, backoff=lambda attempt: 0)
        def fails():
            raise Odd
        if __name__ == "__main__":
            with app:
                print(app.sync(job.enqueue_sync(Point(3)).wait(50)))
                try:
                    app.sync(fails.enqueue_sync().wait(50))
                except Exception as error:
                    print(error)
        """
    )
    code, said = process.ends(within=50)
    assert code == 0, process.errors()
    first, second = said.splitlines()
    assert first == "__mp_main__ 3"
    assert "ended as failed" in second
    assert next(run.attempt for run in reader.sync(reader.runs(task="fails"))) == 2


def test_so_is_one_of_a_module_that_was_started_with_m(start: Start) -> None:
    process = start(
        """
        @app.task(executor="process")
        def job() -> str:
            return __name__
        if __name__ == "__main__":
            with app:
                print(app.sync(job.enqueue_sync().wait(50)))
        """,
        "-m",
        "jobs",
    )
    assert process.ends(within=50) == (0, "__mp_main__\n"), process.errors()


@pytest.mark.parametrize(
    ("guarded", "unguarded", "told"),
    [
        ("job.enqueue_sync()", "app.run()", "an app was started"),
        ("app.run()", "job.enqueue_sync()", "the store was used"),
    ],
)
def test_a_script_without_a_guard_is_told_to_have_one_instead_of_running_everything_again(
    start: Start, reader: Oncron, guarded: str, unguarded: str, told: str
) -> None:
    first, second = sorted([f'if __name__ == "__main__": {guarded}', unguarded], key=lambda line: "run()" in line)
    process = start(
        f"""
        @app.on("run.failed")
        def tell(event):
            say(event.reason)
        @app.task(executor="process", retries=0)
        def job(): ...
        {first}
        {second}
        """
    )
    said = process.next_line()
    assert told in said, process.errors()
    assert 'move that under `if __name__ == "__main__":`' in said
    process.tell(signal.SIGTERM)
    assert process.ends(within=50)[0] == 0
    assert len(reader.sync(reader.runs())) == 1


def test_a_task_in_a_process_uses_the_store_as_any_program_does(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task
        def next_one(): ...
        @app.task(executor="process")
        def job():
            next_one.enqueue_sync()
            return [run.task for run in app.sync(app.runs())]
        if __name__ == "__main__":
            with app:
                say(app.sync(job.enqueue_sync().wait(50)))
        """
    )
    assert process.next_line() == "['next_one', 'job']", process.errors()
    assert process.ends(within=50) == (0, "")


def test_a_stopping_replica_waits_for_its_processes_as_for_threads(start: Start, reader: Oncron) -> None:
    process = start(
        """
        @app.task(executor="process")
        def job(ctx: RunContext) -> str:
            say("started")
            while not ctx.stopping:
                threading.Event().wait(0.01)
            return "in time"
        if __name__ == "__main__":
            job.enqueue_sync()
            app.run()
        """
    )
    process.hear("started")
    process.tell(signal.SIGTERM)
    assert process.ends(within=50) == (0, ""), process.errors()
    (run,) = reader.sync(reader.runs())
    assert (run.state, run.result) == ("succeeded", "in time")


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize(("retries", "state"), [(3, "pending"), (0, "lost")])
def test_what_does_not_end_in_time_or_at_the_second_signal_is_killed_and_given_back(
    start: Start, reader: Oncron, signals: int, retries: int, state: str
) -> None:
    process = start(
        f"""
        @app.task(executor="process", retries={retries})
        def job(ctx: RunContext):
            say("started")
            while not ctx.stopping: pass
            if {signals} == 2: # so much later that the next signal is not an echo of the first
                threading.Event().wait(0.6)
            say("told")
            while True: pass
        if __name__ == "__main__":
            job.enqueue_sync()
            app.run()
            say("returned")
        """,
        stop_within=60 if signals == 2 else 0.2,
    )
    process.hear("started")
    process.tell(signal.SIGTERM)
    process.hear("told")
    if signals == 2:
        process.tell(signal.SIGTERM)
    code, said = process.ends(within=50)
    assert code == 0, process.errors()
    assert said.endswith("returned\n")
    (run,) = reader.sync(reader.runs())
    assert (run.state, run.record.attempts_spent) == (state, 0 if retries else 1)


def test_processes_do_not_outlive_a_replica_that_is_killed(start: Start) -> None:
    process = start(
        """
        import os, ctypes
        @app.task(executor="process")
        def spin():
            say(os.getpid())
            while True: pass
        @app.task(executor="process")
        def deaf():
            say(os.getpid())
            ctypes.PyDLL(None).sleep(1000)
        @app.task(executor="process")
        def idle():
            return os.getpid()
        if __name__ == "__main__":
            with app:
                say(app.sync(idle.enqueue_sync().wait(50)))
                spin.enqueue_sync()
                deaf.enqueue_sync()
                threading.Event().wait()
        """
    )
    workers = [Watch(int(process.next_line())) for _ in range(3)]
    process.tell(signal.SIGKILL)
    assert [worker.ends(within=50) for worker in workers] == [True, True, True]


def test_a_process_does_not_go_on_without_a_lease_while_its_replica_is_stopped(start: Start) -> None:
    process = start(
        """
        import os
        @app.task(executor="process")
        def spin():
            say(os.getpid())
            while True: pass
        if __name__ == "__main__":
            spin.enqueue_sync()
            app.run()
        """
    )
    worker = Watch(int(process.next_line()))
    process.tell(signal.SIGSTOP)
    assert worker.ends(within=50), "lease_for is two seconds"


def test_a_process_logs_as_its_replica_does(start: Start) -> None:
    process = start(
        """
        @app.task(executor="process")
        def job(ctx: RunContext):
            ctx.log.info("working")
        if __name__ == "__main__":
            logging.root.handlers[0].setFormatter(logging.Formatter("SHOP %(levelname)s %(run)s: %(message)s"))
            logging.getLogger("oncron").propagate = False
            logging.getLogger("oncron.task").propagate = True
            with app:
                say(job.enqueue_sync().id)
                app.sync(app.sync(app.runs())[0].wait(50))
        else:
            logging.root.handlers.clear()
        """
    )
    run = process.next_line()
    assert process.ends(within=50)[0] == 0
    assert f"SHOP INFO {run}: working\n" in process.errors()


def test_so_it_does_under_the_command_line(start: Start) -> None:
    process = start(
        """
        @app.task(executor="process")
        def job(ctx: RunContext):
            ctx.log.info("working")
        @app.on("run.succeeded")
        def tell(event):
            say("done")
        @app.on("worker.started")
        def begin(event):
            job.enqueue_sync()
        """,
        *("-m", "oncron", "run", "jobs:app", "--log-format", "json"),
    )
    process.hear("done")
    process.tell(signal.SIGTERM)
    assert process.ends(within=50)[0] == 0
    (line,) = [line for line in process.errors().splitlines() if '"working"' in line]
    assert {"level": "info", "logger": "oncron.task", "task": "job", "attempt": 1}.items() <= json.loads(line).items()
