"""Entries of Celery beat: of an app's `beat_schedule`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

import click

from oncron._clock import wall_us
from oncron.cli.moving import celery_schedule, functions
from oncron.cli.moving.moved import Found, Moved, NoEquivalent, Refused, Rule, TaskCode
from oncron.cli.moving.source import refuse_unwritable
from oncron.cli.target import import_here
from oncron.errors import InvalidTrigger

HOUSEKEEPING = "celery.backend_cleanup"
_CRONTAB = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_KNOWN = ("celery.schedules", "django_celery_beat.tzcrontab")
SOLAR = "it follows the sun, which no trigger does: compute the instants and put once(...), or take a fixed time"


def from_code(place: str, timezone: str | None) -> Found:
    """The beat_schedule of the app at `module:attribute`. Raises click.UsageError, ImportFailed."""
    app = load(place)
    zone = _zone(app, timezone)
    entries = cast("Mapping[str, Mapping[str, Any]]", app.conf.beat_schedule or {})
    found = Found(f"Celery beat ({place})")
    say_in_general(found)
    for given, entry in entries.items():
        name = str(given)
        if entry.get("task") == HOUSEKEEPING:
            found.note(f"{HOUSEKEEPING} is Celery's own and stays there")
            continue
        try:
            found.moved.append(_moved(name, entry, app, zone))
        except (NoEquivalent, InvalidTrigger) as error:
            found.refused.append(Refused(name, str(error)))
    return found


def load(place: str) -> Any:
    """The Celery app, its tasks registered. Raises click.UsageError, ImportFailed."""
    module_name, _, path = place.partition(":")
    if not module_name.replace(".", "").isidentifier():
        raise click.UsageError(f"{place!r}: write MODULE:APP, proj.celery:app for instance")
    try:
        importlib.import_module("celery")
    except ModuleNotFoundError:
        raise click.UsageError("celery is not installed here; import where the app's code runs") from None
    app: Any = import_here(module_name)
    for part in (path or "app").split("."):
        if not hasattr(app, part):
            raise click.UsageError(f"{module_name} has no {path or 'app'!r}; write the name of its Celery app")
        app = getattr(app, part)
    if not (hasattr(app, "conf") and hasattr(app, "tasks") and hasattr(app.conf, "beat_schedule")):
        raise click.UsageError(f"{place} is a {type(app).__name__} and no Celery app")
    try:
        app.loader.import_default_modules()
        app.finalize()
    except Exception as error:  # noqa: BLE001 - the user's modules raise anything
        raise click.UsageError(f"the tasks of {place} cannot be imported: {type(error).__name__}: {error}") from None
    return app


def say_in_general(found: Found) -> None:
    found.note("Celery repeats nothing by itself: retries=0, where oncron's default is 3")
    found.note(
        "beat sends a message although the last run still goes on; here such a tick is skipped (overlap='allow' is as "
        "beat)"
    )


def _zone(app: Any, timezone: str | None) -> str:
    """What crontabs are read in. Raises click.UsageError where Celery takes the host's."""
    if not app.conf.enable_utc:
        if timezone is None:
            raise click.UsageError(
                "enable_utc=False: beat counts on the host's clock, which oncron never does: give --timezone ZONE"
            )
        return timezone
    found = app.timezone
    name = getattr(found, "key", None) or getattr(found, "zone", None) or ("UTC" if not app.conf.timezone else None)
    if not isinstance(name, str) and timezone is None:
        raise click.UsageError(f"the app's zone {found} has no IANA name: give --timezone ZONE")
    return name if isinstance(name, str) else str(timezone)


def _moved(name: str, entry: Mapping[str, Any], app: Any, zone: str) -> Moved:
    if not isinstance(entry.get("task"), str) or "schedule" not in entry:
        raise NoEquivalent("an entry has a task and a schedule; beat would refuse it")
    if not isinstance(entry.get("args") or (), list | tuple) or not isinstance(entry.get("kwargs") or {}, dict):
        raise NoEquivalent("its args are no list, or its kwargs no dict; beat would refuse it")
    rule = _rule(entry["schedule"], zone, relative=bool(entry.get("relative")))
    task = app.tasks.get(entry["task"])
    function: Callable[..., Any] | None = None if task is None else getattr(task, "_orig_run", task.run)
    arguments: dict[str, Any] = dict(entry.get("kwargs") or {})
    if function is None:
        functions.unnamed(entry.get("args") or (), "its task is not registered in the app; pass them by name there")
    else:
        arguments = functions.by_name(function, entry.get("args") or (), arguments)
    refuse_unwritable(arguments)
    options: dict[str, Any] = {"args": arguments} if arguments else {}
    differs = [*rule.differs]
    options |= options_of(entry.get("options") or {}, differs)
    return Moved(
        name,
        rule.trigger,
        _task(entry["task"], task, function, app, differs),
        options | {"retries": 0} | rule.options,
        f"{entry['task']}, {rule.was}",
        tuple(differs),
    )


def _rule(schedule: Any, zone: str, *, relative: bool) -> Rule:
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        schedule = timedelta(seconds=schedule)
    if isinstance(schedule, timedelta):
        return celery_schedule.relative_rule(schedule, zone) if relative else celery_schedule.interval_rule(schedule)
    live = cast("Any", schedule)
    kind = cast("type[Any]", type(live))
    name = kind.__name__ if kind.__module__ in _KNOWN else ""
    if name == "solar":
        raise NoEquivalent(SOLAR)
    if name not in {"crontab", "TzAwareCrontab", "schedule"}:
        raise NoEquivalent(
            f"its schedule is a {kind.__module__}.{kind.__qualname__}, which is code: say when by one of oncron's "
            "triggers"
        )
    if name == "TzAwareCrontab":
        zone = getattr(live.tz, "key", zone)
    elif live.nowfun is not None:
        raise NoEquivalent("its nowfun= is a clock of its own, a zone perhaps: write it as a trigger with timezone=")
    if name == "schedule":
        if relative or live.relative:
            return celery_schedule.relative_rule(live.run_every, zone)
        return celery_schedule.interval_rule(live.run_every)
    values = {field: getattr(live, field) for field in _CRONTAB}
    given = {field: _written(getattr(live, f"_orig_{field}")) for field in _CRONTAB}
    return celery_schedule.crontab_rule(values, given, zone, wall_us())


def _written(given: Any) -> str:
    if isinstance(given, str):
        return given
    return ",".join(map(str, [given] if isinstance(given, int) else sorted(given)))


def options_of(given: Mapping[str, Any], differs: list[str]) -> dict[str, Any]:
    """Of a message, as far as a run has them."""
    found: dict[str, Any] = {}
    left = {name: value for name, value in given.items() if value is not None}
    if "queue" in left:
        found["queue"] = str(left.pop("queue"))
    if "priority" in left:
        found["priority"] = left.pop("priority")
        differs.append(
            f"priority={found['priority']}: higher is first, as on RabbitMQ; if the broker was Redis, where 0 is the "
            "first, turn its sign"
        )
    if "expires" in left:
        differs.append(
            f"expires={left.pop('expires')} has no equivalent for a run that waits in its queue: raise Skip in the "
            "task if ctx.late_by is too long"
        )
    if left:
        differs.append(f"not taken over: {', '.join(f'{name}={value!r}' for name, value in left.items())}")
    return found


def _task(name: str, task: Any, function: Callable[..., Any] | None, app: Any, differs: list[str]) -> TaskCode:
    """Of the function behind it, where a module has it; else of its name alone."""
    if task is None or function is None:
        differs.append(f"its task {name!r} is not registered in the app: define one of that name")
        return TaskCode(name)
    attribute = "_orig_run" if hasattr(task, "_orig_run") else "run"
    place = f"{function.__module__}:{getattr(function, '__qualname__', '')}"
    try:
        known = functions.at(place)
    except NoEquivalent:
        known = None
    if getattr(known, "name", None) != name:
        differs.append(f"its task {name!r} is no function of a module: define one of that name")
        return TaskCode(name)
    if attribute == "_orig_run":
        differs.append("autoretry_for= is not taken over: give retries= and retry_on=")
    if getattr(function, "__self__", None) is not None:
        differs.append("its function has self, the Celery task: replace self.retry and self.request by RunContext")
    limits = [task.soft_time_limit or app.conf.task_soft_time_limit, task.time_limit or app.conf.task_time_limit]
    timeout = min((limit for limit in limits if limit), default=None)
    return functions.task_of(name, f"{place}.{attribute}", function, {} if timeout is None else {"timeout": timeout})
