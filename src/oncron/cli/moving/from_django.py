"""Rows of django-celery-beat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

from oncron import once
from oncron._clock import from_us, wall_us
from oncron.cli.moving import celery_schedule, database, functions
from oncron.cli.moving.from_celery import HOUSEKEEPING, SOLAR, options_of, say_in_general
from oncron.cli.moving.moved import Found, Moved, NoEquivalent, Refused, Rule, TaskCode
from oncron.cli.moving.source import refuse_unwritable
from oncron.errors import InvalidTrigger
from oncron.triggers.zones import load_zone

_TABLES = {
    "crontab": "django_celery_beat_crontabschedule",
    "interval": "django_celery_beat_intervalschedule",
    "clocked": "django_celery_beat_clockedschedule",
    "solar": "django_celery_beat_solarschedule",
}
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_PERIODS = ("days", "hours", "minutes", "seconds", "microseconds")
Row = Mapping[str, Any]


def from_database(url: str, app: Any = None) -> Found:
    """Every periodic task. With a Celery app, positional arguments get the names that its tasks have for them.
    Raises click.UsageError."""
    try:
        tasks = database.rows(url, 'select * from "django_celery_beat_periodictask" order by name', "--database")
        schedules = {
            kind: {row["id"]: row for row in database.rows(url, f'select * from "{table}"', "--database")}  # noqa: S608
            for kind, table in _TABLES.items()
        }
    except database.NoTable as error:
        raise click.UsageError(f"--database: {error}: are the tables of django-celery-beat there?") from None
    found = Found("django-celery-beat's tables")
    say_in_general(found)
    for row in tasks:
        if row["task"] == HOUSEKEEPING:
            found.note(f"{HOUSEKEEPING} is Celery's own and stays there")
            continue
        try:
            found.moved.append(_moved(row, schedules, app))
        except (NoEquivalent, InvalidTrigger) as error:
            found.refused.append(Refused(str(row["name"]), str(error)))
    return found


def _moved(row: Row, schedules: Mapping[str, Mapping[int, Row]], app: Any) -> Moved:
    kinds = [kind for kind in _TABLES if row.get(f"{kind}_id") is not None]
    if len(kinds) != 1:
        raise NoEquivalent(f"it has {len(kinds) or 'no'} schedules instead of one; beat does not run it")
    schedule = schedules[kinds[0]].get(row[f"{kinds[0]}_id"])
    if schedule is None:
        raise NoEquivalent(f"its {kinds[0]} schedule is not there any more")
    now = from_us(wall_us())
    rule = _rule(kinds[0], schedule, row, now)
    options: dict[str, Any] = {}
    if arguments := _arguments(row, app):
        options["args"] = arguments
    differs = [*rule.differs]
    given = {name: row.get(name) for name in ("queue", "priority", "exchange", "routing_key")}
    options |= options_of({**given, "expires": row.get("expire_seconds"), "headers": _headers(row)}, differs)
    options |= {"retries": 0} | _window(row, now) | rule.options
    if row["one_off"] and kinds[0] != "clocked":
        if row["total_run_count"]:
            raise NoEquivalent("it is one_off and has run")
        options["limit"] = 1
    if not row["enabled"]:
        options["paused"] = True
    if app is None or row["task"] not in app.tasks:
        differs.append(f"its task is known by name alone: define one, @app.task(name={row['task']!r})")
    return Moved(
        str(row["name"]),
        rule.trigger,
        TaskCode(str(row["task"])),
        options,
        f"{row['task']}, {rule.was}",
        tuple(differs),
    )


def _rule(kind: str, schedule: Row, row: Row, now: datetime) -> Rule:
    if kind == "solar":
        raise NoEquivalent(SOLAR)
    if kind == "clocked":
        at = instant(schedule["clocked_time"], "clocked_time")
        if at <= now:
            raise NoEquivalent(f"its time, {at.isoformat()}, is over")
        return Rule(once(at), f"clocked at {at.isoformat()}")
    if kind == "interval":
        if schedule["period"] not in _PERIODS:
            raise NoEquivalent(f"its period {schedule['period']!r} is none of {', '.join(_PERIODS)}")
        known = row.get("start_time") or row.get("last_run_at")
        anchor = None if known is None else instant(known, "last_run_at").replace(microsecond=0)
        return celery_schedule.interval_rule(timedelta(**{schedule["period"]: schedule["every"]}), anchor)
    zone = load_zone(str(schedule["timezone"])).name
    given = {name: str(schedule[name]).replace(" ", "") for name in _FIELDS}
    values = {name: celery_schedule.parse(name, text) for name, text in given.items()}
    return celery_schedule.crontab_rule(values, given, zone, wall_us())


def _window(row: Row, now: datetime) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if row.get("start_time") is not None and (start := instant(row["start_time"], "start_time")) > now:
        found["start_at"] = start
    if row.get("expires") is not None:
        found["end_at"] = instant(row["expires"], "expires")
        if found["end_at"] <= now:
            raise NoEquivalent(f"it expired at {found['end_at'].isoformat()}")
    return found


def instant(value: Any, name: str) -> datetime:
    """In UTC. SQLite has texts without a zone, which Django writes in UTC; another naive one is refused."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise NoEquivalent(f"{name} {value!r} is no instant") from None
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise NoEquivalent(f"{name} {value} has no zone: USE_TZ was off, and it may mean any; set USE_TZ = True there")
    return value.astimezone(UTC)


def _arguments(row: Row, app: Any) -> dict[str, Any]:
    positional, named = _json(row, "args", list), _json(row, "kwargs", dict)
    task = None if app is None else app.tasks.get(row["task"])
    if task is None:
        functions.unnamed(positional, "move them to kwargs there, or give --app MODULE:APP, whose tasks have names")
    found = named if task is None else functions.by_name(getattr(task, "_orig_run", task.run), positional, named)
    refuse_unwritable(found)
    return found


def _json(row: Row, name: str, kind: type[Any]) -> Any:
    try:
        found = json.loads(row[name] or ("[]" if kind is list else "{}"))
    except ValueError as error:
        raise NoEquivalent(f"its {name} are no JSON ({error}); beat does not run it") from None
    if not isinstance(found, kind):
        raise NoEquivalent(f"its {name} are no {'array' if kind is list else 'object'}, but {row[name]}")
    return found


def _headers(row: Row) -> dict[str, Any] | None:
    try:
        found = json.loads(row.get("headers") or "{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) and found else None
