"""Jobs of APScheduler 3: of a scheduler in code, or of its SQLAlchemy job store."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from inspect import isclass, ismethod
from typing import Any, cast
from zoneinfo import ZoneInfo

import click

from oncron._clock import from_us, to_us, wall_us
from oncron.cli.moving import clocks, database, functions, unpickled
from oncron.cli.moving.apscheduler_trigger import WHOSE, HostZone, Reading, State, rule_of
from oncron.cli.moving.moved import Found, Moved, NoEquivalent, Refused, Rule
from oncron.cli.moving.source import refuse_unwritable
from oncron.cli.target import import_here
from oncron.errors import InvalidTrigger
from oncron.triggers import parse

_OWN_ID = re.compile(r"[0-9a-f]{32}")
_ZONED = (
    "schedulers.base", "triggers.calendarinterval", "triggers.cron", "triggers.date", "triggers.interval",
)  # fmt: skip
"""Modules that ask for the host's zone."""
_LATE = 1
"""Seconds: APScheduler's misfire_grace_time if nobody gives one."""


@dataclass(frozen=True)
class _Job:
    """What a job is, wherever it was read."""

    id: str
    name: str
    place: str | None
    """`module:name`; None for a function that has no such place."""
    function: Any
    """None if it was not imported."""
    trigger: State
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    grace: int | None
    coalesce: bool
    instances: int
    executor: str
    paused: bool
    first_at: datetime | None = None
    """Where the code gave its first run an instant of its own."""


class StartedInImport(Exception):
    """The module starts its scheduler while it is imported."""


def from_code(place: str, timezone: str | None) -> Found:
    """The jobs of the scheduler at `module:attribute`. Raises click.UsageError, ImportFailed."""
    module_name, colon, path = place.partition(":")
    if not (colon and path and module_name.replace(".", "").isidentifier()):
        raise click.UsageError(f"{place!r}: write MODULE:SCHEDULER, shop.jobs:scheduler for instance")
    since = _now()
    with _watched():
        scheduler: Any = import_here(module_name)
        for part in path.split("."):
            if not hasattr(scheduler, part):
                raise click.UsageError(f"{module_name} has no {path!r}; write the name of its scheduler")
            scheduler = getattr(scheduler, part)
    if not hasattr(scheduler, "get_jobs") or not hasattr(scheduler, "timezone"):
        mend = "; APScheduler 4 is not read" if hasattr(scheduler, "get_schedules") else ""
        raise click.UsageError(f"{place} is a {type(scheduler).__name__} and no scheduler of APScheduler 3{mend}")
    reading = Reading(timezone, _now(), since)
    return _found(f"APScheduler ({place})", [_live(job, scheduler) for job in scheduler.get_jobs()], reading)


@contextmanager
def _watched() -> Generator[None]:
    """Where nobody gives a zone, the host's is marked; and no scheduler starts, as its jobs would run."""
    try:
        base, *triggers = [importlib.import_module(f"apscheduler.{name}") for name in _ZONED]
    except ModuleNotFoundError as error:
        mend = "import where the scheduler's code runs" if error.name == "apscheduler" else "APScheduler 3.11 is read"
        raise click.UsageError(f"{error.name} is not installed here; {mend}") from None
    modules: list[Any] = [base, *triggers]
    host = HostZone(getattr(base.get_localzone(), "key", None) or "UTC")
    kept = [module.get_localzone for module in modules]
    start = base.BaseScheduler.start

    def refuse(*_: Any, **__: Any) -> None:
        raise StartedInImport("its scheduler is started while it is imported: start it under `if __name__ == ...`")

    try:
        for module in modules:
            module.get_localzone = lambda: host
        base.BaseScheduler.start = refuse
        yield
    finally:
        for module, one in zip(modules, kept, strict=True):
            module.get_localzone = one
        base.BaseScheduler.start = start


def _live(job: Any, scheduler: Any) -> _Job:
    defaults = cast("dict[str, Any]", scheduler._job_defaults)  # noqa: SLF001 - what a job has that says nothing
    named = {name: getattr(job, name, value) for name, value in defaults.items()}
    first = getattr(job, "next_run_time", None)
    return _Job(
        job.id,
        job.name,
        job.func_ref,
        job.func,
        _state(job.trigger),
        job.args,
        job.kwargs,
        named["misfire_grace_time"],
        named["coalesce"],
        named["max_instances"],
        job.executor,
        paused=hasattr(job, "next_run_time") and first is None,
        first_at=first,
    )


def _state(trigger: Any) -> State:
    kind = cast("type[Any]", type(trigger))
    if not kind.__module__.startswith("apscheduler.triggers."):
        return State(f"{kind.__module__}.{kind.__qualname__}", {})
    return State(kind.__name__, trigger.__getstate__())


def from_store(url: str, table: str, timezone: str | None, *, trusted: bool) -> Found:
    """The jobs of a SQLAlchemy job store. Nothing that is pickled there is run; with `trusted`, the functions that
    the jobs name are imported. Raises click.UsageError."""
    query = f"select id, job_state from {database.table_name(table, '--table')} order by id"  # noqa: S608 - quoted
    try:
        rows = database.rows(url, query, "--jobstore")
    except database.NoTable as error:
        raise click.UsageError(f"--jobstore: {error}; give its name with --table. APScheduler 4 is not read") from None
    jobs: list[_Job | Refused] = []
    for row in rows:
        try:
            jobs.append(_stored(unpickled.job_state(bytes(row["job_state"] or b"")), trusted=trusted))
        except (NoEquivalent, InvalidTrigger) as error:
            jobs.append(Refused(str(row["id"]), str(error)))
        except KeyError as error:
            jobs.append(Refused(str(row["id"]), f"its state lacks {error}: it is not as APScheduler 3.11 stores it"))
    return _found(f"APScheduler's job store, table {table}", jobs, Reading(timezone, _now()))


def _stored(state: Mapping[str, Any], *, trusted: bool) -> _Job:
    trigger, place, values = state["trigger"], str(state["func"]), getattr(state["trigger"], "values", {})
    if not isinstance(values, dict):
        raise NoEquivalent("it was stored by an APScheduler before 3.1: start it once with a newer one")
    return _Job(
        str(state["id"]),
        str(state["name"]),
        place,
        functions.at(place) if trusted else None,
        State(type(trigger).__name__, cast("dict[str, Any]", values)),
        state["args"],
        state["kwargs"],
        state["misfire_grace_time"],
        state["coalesce"],
        state["max_instances"],
        state["executor"],
        paused=state["next_run_time"] is None,
    )


# --- from a job to a schedule -----------------------------------------------------------------


def _found(origin: str, jobs: Sequence[_Job | Refused], reading: Reading) -> Found:
    found = Found(origin)
    found.note("APScheduler repeats nothing: retries=0, where oncron's default is 3")
    found.note("what ran in each process that had the scheduler now runs once per tick, whatever their number")
    read = [job for job in jobs if isinstance(job, _Job)]
    names, running = _task_names(read), _running(read)
    taken = {job.id for job in read}
    for job in jobs:
        if isinstance(job, Refused):
            found.refused.append(job)
            continue
        shown = job.name if _OWN_ID.fullmatch(job.id) else job.id
        if shown != job.id:
            shown = next(name for name in _numbered(shown) if name not in taken)
            taken.add(shown)
        try:
            found.moved.append(_moved(shown, job, names, running, reading, found))
        except (NoEquivalent, InvalidTrigger) as error:
            found.refused.append(Refused(shown, str(error)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"it is not as APScheduler 3.11 makes it: {type(error).__name__}: {error}"
            found.refused.append(Refused(shown, why))
    return found


def _numbered(name: str) -> Iterator[str]:
    """`name`, `name-2`, `name-3`, ..."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def _task_names(jobs: Sequence[_Job]) -> dict[str, str]:
    """By place: the function's own name, with its module where two have the same."""
    places = {job.place for job in jobs if job.place is not None}
    short = [place.partition(":")[2] for place in places]
    return {
        place: place.partition(":")[2] if short.count(place.partition(":")[2]) == 1 else place.replace(":", ".")
        for place in places
    }


def _running(jobs: Sequence[_Job]) -> dict[str, int]:
    """By place: how many runs of all its jobs together there could be, where one of them allowed several."""
    several = {job.place for job in jobs if job.instances > 1}
    return {place: sum(job.instances for job in jobs if job.place == place) for place in several if place is not None}


def _moved(
    name: str, job: _Job, names: Mapping[str, str], running: Mapping[str, int], reading: Reading, found: Found
) -> Moved:
    if job.place is None:
        raise NoEquivalent("its function is a lambda, a partial, or inside another one: give it a name in a module")
    if ismethod(job.function) and not isclass(job.function.__self__):
        raise NoEquivalent("its function is bound to an object, which other processes do not have: make it a function")
    rule = rule_of(job.trigger, reading)
    if job.function is None:
        functions.unnamed(job.arguments, "pass them by name there, or let --trust import the function")
        arguments = dict(job.named)
    else:
        arguments = functions.by_name(job.function, job.arguments, job.named)
    refuse_unwritable(arguments)
    differs = [*rule.differs, *_clock_changes(rule, reading, found)]
    task_options = {"max_running": running[job.place]} if job.place in running else {}
    task = functions.task_of(names[job.place], job.place, job.function, task_options)
    if job.first_at is not None:
        differs.append(f"its first run at {job.first_at.isoformat()} is not taken over: `oncron fire` runs it at once")
    if job.executor != "default":
        differs.append(f"executor={job.executor!r}: if that is a process pool, give the task executor='process'")
    options = {"args": arguments} if arguments else {}
    return Moved(
        name,
        rule.trigger,
        task,
        options | _policies(job, found, differs) | rule.options | ({"paused": True} if job.paused else {}),
        rule.was,
        tuple(differs),
    )


def _policies(job: _Job, found: Found, differs: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if not job.coalesce:
        options["missed"] = "all"
        found.note("coalesce=False is missed='all', but for no more than the newest 100 (missed_limit)")
    if job.grace is not None:
        options["missed_within"] = job.grace
        said = "misfire_grace_time is missed_within: what was missed longer ago does not run"
        if job.grace < 60:
            said += "; a tick up to a minute late still does, unless the next one is due as well"
        if job.grace == _LATE:
            said += " (1 s is APScheduler's default; without missed_within the newest missed tick runs)"
        found.note(said)
    if job.instances > 1:
        options["overlap"] = "allow"
        differs.append(
            f"max_instances={job.instances} dropped further ticks of it in its process; here they wait for "
            "max_running= of the task, which counts the runs of all its schedules, in all processes"
        )
    else:
        found.note("max_instances=1 is overlap='skip', the default; it holds for all processes together")
    return options | {"retries": 0}


def _clock_changes(rule: Rule, reading: Reading, found: Found) -> list[str]:
    if not rule.texts:
        return []
    try:
        importlib.import_module("apscheduler.triggers.cron")
    except ModuleNotFoundError:
        found.note("what clock changes did there is not told: APScheduler, which knows it, is not installed here")
        return []
    return [*_asked(str(rule.trigger), tuple(rule.texts.items()), to_us(reading.now))]


@lru_cache(maxsize=10_000)
def _asked(trigger: str, texts: tuple[tuple[str, str], ...], now: int) -> tuple[str, ...]:
    """What clock changes do: of many jobs, most run when others do."""
    ours = parse(trigger)
    module = importlib.import_module("apscheduler.triggers.cron")
    theirs = module.CronTrigger(**dict(texts), timezone=ZoneInfo(ours.timezone or "UTC"))
    return (*clocks.differences(ours, lambda start, end: ticks(theirs, start, end), WHOSE, now),)


def ticks(trigger: Any, start: int, end: int) -> list[int]:
    """The instants in (start, end] of a live trigger of APScheduler, as its scheduler asks for them; microseconds."""
    found: list[int] = []
    tick = trigger.get_next_fire_time(None, from_us(start + 1))
    while tick is not None and to_us(tick) <= end:
        found.append(to_us(tick))
        tick = trigger.get_next_fire_time(tick, tick.astimezone(UTC) + timedelta(seconds=1))
    return found


def _now() -> datetime:
    return from_us(wall_us())
