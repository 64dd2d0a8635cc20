"""What one app declares: tasks and schedules by name, with the place where each was written."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from oncron import _defaults as limits, _options as check
from oncron._arguments import by_name, unchecked
from oncron._chain import Layer, layer_of
from oncron._clock import wall_us
from oncron._engine.spec import TaskSpec
from oncron._importable import refuse_unfound
from oncron._limiter import Limiter
from oncron._lock_key import known_key
from oncron._model import Definition, Missed, Overlap, checked_name, sortable_version
from oncron._task import Settings, Task, TaskDesk, make_task, spec_of, unique_text
from oncron.errors import DuplicateName, InvalidArguments, InvalidOption, InvalidTask, InvalidTrigger
from oncron.triggers import Trigger
from oncron.triggers.parse import is_own
from oncron.triggers.zones import load_zone, tzdata_version

log = logging.getLogger("oncron.schedule")

_PACKAGE = __name__.split(".", maxsplit=1)[0]


@dataclass(frozen=True)
class Declared:
    """A schedule as the code declares it."""

    definition: Definition
    place: str


class Registry:
    """Names are unique per kind; a refused declaration leaves nothing behind."""

    def __init__(self, *, timezone: str, release: int | None, defaults: Mapping[str, Any] | None) -> None:
        self.timezone = load_zone_name(timezone)
        self.release = check.number(release, "release", least=0, most=2**62, none=True)
        self.task_defaults, self._schedule_defaults = _defaults(defaults)
        self.tasks: dict[str, Task[..., Any]] = {}
        self.specs: dict[str, TaskSpec] = {}
        self.middleware: list[Layer] = []
        self.queue_limits: dict[str, int] = {}
        self.limiters: dict[str, Limiter] = {}
        self.schedules: dict[str, Declared] = {}
        self._places: dict[str, str] = {}

    @contextmanager
    def kept(self) -> Generator[None]:
        """What is declared meanwhile is forgotten afterwards."""
        before: dict[str, Any] = {
            name: value.copy() for name, value in vars(self).items() if isinstance(value, dict | list)
        }
        try:
            yield
        finally:
            for name, value in before.items():
                table: Any = getattr(self, name)
                table.clear()
                table.extend(value) if isinstance(value, list) else table.update(value)

    # --- tasks ------------------------------------------------------------------------

    def make(self, fn: Any, options: Mapping[str, Any], desk: TaskDesk, *, where: str = "task") -> Task[..., Any]:
        """The task of a function, not yet added."""
        check.known(options, check.TASK, where)
        if isinstance(fn, Task):
            raise InvalidTask(f"{fn.name!r} is a task already; use fn={fn.name}.fn, or schedule it")
        if isinstance(fn, staticmethod):
            fn = fn.__func__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not callable(fn):
            raise InvalidTask(f"{fn!r} is no function; write @app.task above a def, or @app.task(...) with options")
        name = checked_name(options["name"] if "name" in options else _own_name(fn), "task")
        settings = self.task_defaults.merged(options)
        return make_task(fn, name, settings, desk, _caller_locals())

    def add_task(self, task: Task[..., Any], desk: TaskDesk) -> None:
        place = _place(task.fn)
        if task.name in self.tasks:
            raise DuplicateName(
                f"task {task.name!r} is defined at {place} and at {self._places[task.name]}; "
                "give one of them another name="
            )
        self.tasks[task.name], self._places[task.name] = task, place
        self.specs[task.name] = spec_of(task, desk)

    def use(self, middleware: Any, desk: TaskDesk) -> None:
        """Around every task, those declared already included."""
        self.middleware.append(layer_of(middleware))
        for name, task in self.tasks.copy().items():
            self.specs[name] = spec_of(task, desk)

    def limit_queue(self, queue: Any, most: int) -> None:
        name = check.queue_name(queue)
        place = f"queue\n{name}"
        if name in self.queue_limits:
            raise DuplicateName(
                f"queue {name!r} is declared at {_calling_place()} and at {self._places[place]}; once is enough"
            )
        self.queue_limits[name] = most
        self._places[place] = _calling_place()

    def add_limiter(self, limiter: Limiter) -> None:
        place = f"limiter\n{limiter.name}"
        if limiter.name in self.limiters:
            raise DuplicateName(
                f"limiter {limiter.name!r} is made at {_calling_place()} and at {self._places[place]}; "
                "make it once and use it in both places, or give one of them another name"
            )
        self.limiters[limiter.name] = limiter
        self._places[place] = _calling_place()

    def queue_names(self) -> set[str]:
        """That this process's code names."""
        named = {task.settings.queue for task in self.tasks.copy().values()}
        named |= {declared.definition.queue for declared in self.schedules.copy().values()}
        return named | self.queue_limits.keys() | {self.task_defaults.queue}

    # --- schedules --------------------------------------------------------------------

    def declare(self, declared: Declared) -> None:
        self.refuse_taken(declared)
        self.schedules[declared.definition.name] = declared

    def refuse_taken(self, declared: Declared) -> None:
        name = declared.definition.name
        if name in self.schedules:
            raise DuplicateName(
                f"schedule {name!r} is declared at {declared.place} and at {self.schedules[name].place}; "
                "give one of them another name="
            )

    def refuse_unfound(self) -> None:
        """Raises InvalidTask for a task that another process would look for in vain."""
        for name, spec in self.specs.copy().items():
            if spec.target is not None:
                refuse_unfound(self.tasks[name].fn, spec.target)

    def warn_of_strangers(self) -> None:
        """A schedule whose task is not here runs only where it is: normal in a fleet of services, and what a
        misspelt name looks like."""
        for name, declared in self.schedules.copy().items():
            if declared.definition.task not in self.tasks:
                log.warning(
                    "schedule %r: no task %r in this process; only replicas that have it will run it",
                    name, declared.definition.task, extra={"event": "schedule.stranger", "schedule": name},
                )  # fmt: skip

    def definitions(self) -> list[Definition]:
        return [declared.definition for declared in self.schedules.copy().values()]

    def define(
        self, name: Any, trigger: Any, task: Task[..., Any] | str, options: Mapping[str, Any], *, origin: str = "code"
    ) -> Declared:
        """The schedule of these options, bound and checked, not yet added."""
        name = checked_name(name, "schedule")
        where = f"schedule {name!r}"
        _refuse_task_options(options, where)
        if isinstance(task, str):
            task = self.tasks.get(checked_name(task, "task"), task)
        settings = (task.settings if isinstance(task, Task) else self.task_defaults).merged(options)
        timing = {**self._schedule_defaults, **{k: v for k, v in options.items() if k in check.TIMING}}
        bound = self._bound(where, name, trigger, timing.get("timezone"))
        values = by_name(timing.get("args", {}), name)
        task_name, args = _checked_args(where, task, values)
        within = check.duration(timing.get("missed_within"), "missed_within", least=1, none=True)
        definition = Definition(
            name=name,
            trigger=str(bound),
            task=task_name,
            args=args,
            missed=check.missed_word(timing.get("missed", Missed.LATEST)),
            missed_within=_once_in_time(where, bound, within),
            missed_limit=check.number(
                timing.get("missed_limit", limits.MISSED_LIMIT), "missed_limit", least=1, most=limits.PLAN_WALK
            ),
            overlap=check.overlap_word(timing.get("overlap", Overlap.SKIP)),
            jitter=check.span(timing.get("jitter", 0), "jitter"),
            start_at=check.instant(timing.get("start_at"), "start_at"),
            end_at=check.instant(timing.get("end_at"), "end_at"),
            limit=check.number(timing.get("limit"), "limit", least=1, most=2**62, none=True),
            tags=check.tag_list(timing.get("tags", ())),
            paused=check.truth(timing.get("paused", False), "paused"),
            queue=settings.queue,
            priority=settings.priority,
            retries=settings.retries,
            retry_delay=settings.backoff(1, name),
            timeout=settings.timeout,
            unique=unique_text(task_name, settings.unique, args, values),
            guard=check.guard_word(timing.get("guard")),
            origin=origin,
            release=self.release,
            tzdata=sortable_version(tzdata_version()),
        )
        _refuse_empty_window(where, definition)
        if definition.guard == "advisory":
            known_key(name)
        return Declared(definition, _calling_place())

    def _bound(self, where: str, name: str, trigger: Any, timezone: Any) -> Trigger:
        if not isinstance(trigger, Trigger):
            raise InvalidTrigger(
                f"{where} needs a trigger",
                expression=trigger,
                mend="write cron('0 3 * * *'), every(minutes=5), daily('03:00') or another of oncron's triggers",
            )
        if not is_own(trigger):
            raise InvalidTrigger(
                f"{where}: a trigger of one's own is code, and the store keeps text that every replica can read",
                expression=type(trigger).__qualname__,
                mend="give its instants to once(), or enqueue each run with task.options(at=...)",
            )
        zone = None if timezone is None else load_zone_name(timezone)
        if zone is not None and trigger.timezone is not None and zone != trigger.timezone:
            raise InvalidOption(
                f"{where}: its trigger has timezone={trigger.timezone!r} and the schedule {zone!r}; give one of them"
            )
        return trigger.bind(name, zone or self.timezone)


def load_zone_name(timezone: Any) -> str:
    """The name of an IANA zone. Raises InvalidTrigger with the nearest names."""
    return load_zone(timezone).name


def _defaults(defaults: Mapping[str, Any] | None) -> tuple[Settings, dict[str, Any]]:
    given = dict(defaults or {})
    check.known(given, (check.TASK | check.TIMING) - {"name", "args", "start_at", "end_at", "limit"}, "defaults=")
    return Settings().merged(given), {name: value for name, value in given.items() if name in check.TIMING}


def _refuse_task_options(options: Mapping[str, Any], where: str) -> None:
    for name in options:
        if name in check.TASK - check.RUN - {"name"}:
            raise InvalidOption(
                f"{where}: {name}= belongs to the task, not to one of its schedules; give it to @app.task"
            )
    check.known(options, check.TIMING | check.RUN, where)


def _checked_args(where: str, task: Task[..., Any] | str, values: Mapping[str, Any]) -> tuple[str, str]:
    """The task's name and the arguments' JSON."""
    if isinstance(task, str):
        return task, unchecked(values, task)
    missing = task.parameters.missing(values)
    if missing:
        shown = ", ".join(f"{name!r}: ..." for name in missing)
        raise InvalidArguments(
            f"{where}: task {task.name!r} needs {', '.join(map(repr, missing))}; give args={{{shown}}} or a default"
        )
    try:
        return task.name, task.parameters.encode(task.parameters.bind((), values))
    except InvalidArguments as error:
        raise InvalidArguments(f"{where}: {error}", path=error.path) from None


def _once_in_time(where: str, trigger: Trigger, within: int | None) -> int | None:
    """`once` is owed for a day unless told otherwise; one that can never fire any more is a mistake."""
    if trigger.first_us is None:
        return within
    within = limits.MISSED_WITHIN_ONCE if within is None else within
    if trigger.next_after_us(wall_us() - within) is None:
        raise InvalidTrigger(
            f"{where}: every instant is more than {within / 1_000_000:g} s ago",
            expression=str(trigger),
            mend="remove it, or widen missed_within=",
        )
    return within


def _refuse_empty_window(where: str, definition: Definition) -> None:
    start, end = definition.start_at, definition.end_at
    if start is not None and end is not None and start > end:
        raise InvalidOption(f"{where}: start_at lies after end_at, so it has no tick; swap them")


def _own_name(fn: Any) -> str:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(inner, "__name__", None)
    if not isinstance(name, str):
        raise InvalidTask(f"{fn!r} has no __name__; give the task one: app.task(fn, name='...')")
    return name


def _place(fn: Any) -> str:
    inner = inspect.unwrap(fn.func if isinstance(fn, functools.partial) else fn)
    code = getattr(inner, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else _calling_place()


def _caller() -> FrameType | None:
    """The nearest frame outside of this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".", maxsplit=1)[0] == _PACKAGE:
        frame = frame.f_back
    return frame


def _calling_place() -> str:
    frame = _caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"


def _caller_locals() -> Mapping[str, Any]:
    frame = _caller()
    return {} if frame is None else frame.f_locals
