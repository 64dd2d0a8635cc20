"""One replica in virtual time: a task is written, a run asked for, and what became of it looked at."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from oncron._engine.spec import Execution
from oncron._model import Definition, NewRun, RunRecord, RunState, new_run_id
from oncron.triggers import Trigger
from tests.simulation.fleet import Fleet, fleet_in_virtual_time
from tests.simulation.network import Link
from tests.simulation.world import SECOND

Task = Callable[[Execution], Coroutine[Any, Any, Any]]


def scheduled(name: str, trigger: Trigger, task: str = "send", **options: Any) -> Definition:
    return Definition(**({"name": name, "trigger": str(trigger.bind(name)), "task": task} | options))


class One:
    """A fleet of one (or more, if asked), with words for what a test does."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @property
    def link(self) -> Link:
        return self.fleet.replicas[0].link

    @property
    def engine(self) -> Any:
        return self.fleet.replicas[0].engine

    def passes(self, seconds: float) -> None:
        self.fleet.loop.run_until_complete(self.fleet.sleep(seconds))

    def does(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.fleet.loop.run_until_complete(work)

    def in_replica(self, work: Coroutine[Any, Any, Any], number: int = 0) -> Any:
        replica = self.fleet.replicas[number]
        return self.does(self.fleet.loop.in_process(replica.process, work))

    def enqueue(self, task: str = "send", **options: Any) -> str:
        run = NewRun(**({"id": new_run_id(), "task": task, "retry_delay": 0} | options))

        async def ask() -> None:
            await self.fleet.desk(lambda store: store.enqueue([run]))
            await self.fleet.desk(lambda store: store.hint())

        self.does(ask())
        return run.id

    def run_of(self, run_id: str) -> RunRecord:
        return self.fleet.store._run_rows[run_id]

    def executed(self, task: str = "send", **options: Any) -> RunRecord:
        """A run of the task, after all its attempts."""
        run_id = self.enqueue(task, **options)
        for _ in range(300):
            if not self.run_of(run_id).state.is_open:
                break
            self.passes(1)
        return self.run_of(run_id)

    def heard(self, run: RunRecord | str) -> list[str]:
        """The events of the run, in order."""
        run_id = run if isinstance(run, str) else run.id
        return [event.name.removeprefix("run.") for event in self.fleet.events if event.run == run_id]

    @property
    def lines(self) -> list[str]:
        """How each execution went."""
        return [line.how for line in self.fleet.oracle.lines]

    def is_well(self) -> None:
        """No guarantee was broken, and a new run is still executed: nothing got stuck."""
        self.fleet.oracle.verdict(self.fleet.store, drained=False)
        assert self.executed("well").state is RunState.SUCCEEDED


@contextmanager
def one_replica(
    tasks: dict[str, Task] | Task | None = None,
    *,
    replicas: int = 1,
    definitions: Sequence[Definition] = (),
    **options: Any,
) -> Iterator[One]:
    """Up and running, with these tasks ("send" if it is one) and "well", which does nothing."""
    named = {"send": tasks} if callable(tasks) else tasks or {}

    def body(task: Task) -> Any:
        return lambda execution, _chance: task(execution)

    async def well(_execution: Execution) -> None: ...

    bodies = {name: body(task) for name, task in ({"well": well} | named).items()}
    with fleet_in_virtual_time(replicas=replicas, bodies=bodies, **options) as fleet:
        fleet.definitions = list(definitions)
        fleet.boot()
        one = One(fleet)
        one.passes(0.1)
        assert fleet.oracle.violations == []
        yield one


LEASE = 15 * SECOND
