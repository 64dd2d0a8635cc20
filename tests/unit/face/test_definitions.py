"""Mistakes in definitions are refused at once, each by its own error, with what, which and what to do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from oncron import Oncron, RunContext, Trigger, cron, daily, every, once
from oncron._task import Task
from oncron.errors import (
    DuplicateName,
    InvalidArguments,
    InvalidOption,
    InvalidTask,
    InvalidTrigger,
)

if TYPE_CHECKING:
    from pathlib import Path as OnlyForCheckers

HERE = __file__


# --- what a decorated function is ----------------------------------------------------------------


def test_a_task_is_callable_as_before_and_keeps_its_face(app: Oncron) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert add(1) == 3
    assert add.fn(1, b=1) == 2
    assert (add.name, add.__name__, add.__doc__) == ("add", "add", "Adds.")
    assert list(inspect.signature(add).parameters) == ["a", "b"]


async def test_an_async_task_is_awaited_as_before(app: Oncron) -> None:
    @app.task
    async def add(a: int) -> int:
        return a + 1

    assert await add(1) == 2


def test_a_bound_method_a_partial_and_an_object_can_be_tasks(app: Oncron) -> None:
    class Service:
        def sweep(self, days: int) -> int:
            return days

        def __call__(self, n: int) -> int:
            return n

    def power(base: int, exponent: int) -> int:
        return base**exponent

    assert app.task(Service().sweep)(3) == 3
    assert app.task(functools.partial(power, exponent=2), name="square")(3) == 9
    assert app.task(Service(), name="callable")(4) == 4


def test_the_context_is_no_argument(app: Oncron) -> None:
    @app.task
    def report(ctx: RunContext, kind: str) -> None: ...

    assert str(report.parameters) == "(kind)"
    assert report.parameters.takes_context


# --- functions that cannot be tasks --------------------------------------------------------------


class Service:
    def method(self, n: int) -> None: ...

    @classmethod
    def factory(cls) -> None: ...


def with_star(*names: str) -> None: ...


def positional(a: int, /) -> None: ...


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


def timed(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@timed
async def wrapped() -> None: ...


def unresolved(path: OnlyForCheckers) -> None: ...


def late_context(a: int, ctx: RunContext) -> None: ...


def optional_context(ctx: RunContext | None) -> None: ...


def unfit(call: Callable[[], int] | int | list[int] | str | set[int]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (Service.method, r"takes 'self'.*app.task\(obj.method, name='method'\)"),
        (with_star, r"takes \*names.*take a list"),
        (positional, "'a' is positional-only.*drop the '/'"),
        (lambda: None, "lambda.*write a def"),
        (generator, "generator"),
        (async_generator, "generator"),
        (wrapped, "inside a decorator that is not async.*wrapper as an async def"),
        (unresolved, "'OnlyForCheckers' cannot be resolved; import it at module level"),
        (late_context, "'ctx' is a RunContext but not the first parameter; put it first"),
        (optional_context, "annotate 'ctx' as RunContext alone"),
        (unfit, "'call' is annotated"),
        (Service, "is no function"),
        (classmethod(Service.factory), "is no function"),
        (3, "is no function"),
    ],
)
def test_a_function_that_cannot_be_a_task_is_refused_with_the_mend(app: Oncron, fn: Any, says: str) -> None:
    with pytest.raises(InvalidTask, match=says):
        app.task(fn)
    assert app._registry.tasks == {}


def test_an_object_without_a_name_needs_one(app: Oncron) -> None:
    class Sweep:
        def __call__(self) -> None: ...

    with pytest.raises(InvalidTask, match="has no __name__; give the task one"):
        app.task(Sweep())


def test_annotations_may_name_what_is_local_to_the_definition(app: Oncron) -> None:
    from dataclasses import dataclass

    @dataclass
    class Order:
        id: int

    @app.task
    def charge(order: Order) -> None: ...

    assert charge.parameters.decode('{"order":{"id":3}}') == {"order": Order(3)}


# --- names ---------------------------------------------------------------------------------------


def test_a_task_name_twice_is_refused_naming_both_places(app: Oncron) -> None:
    @app.task
    def job() -> None: ...

    first = inspect.getsourcelines(job.fn)[1]
    with pytest.raises(DuplicateName) as raised:

        @app.task(name="job")
        def other() -> None: ...

    assert f"{HERE}:{first}" in str(raised.value)
    assert str(raised.value).count(HERE) == 2


def test_a_schedule_name_twice_is_refused_naming_both_places(app: Oncron) -> None:
    @app.task
    def job() -> None: ...

    app.add_schedule("nightly", daily("03:00"), job)
    with pytest.raises(DuplicateName, match="schedule 'nightly' is declared at") as raised:
        app.add_schedule("nightly", daily("04:00"), job)
    assert str(raised.value).count(HERE) == 2


def test_a_refused_schedule_leaves_no_task_behind(app: Oncron) -> None:
    @app.task
    def job() -> None: ...

    app.add_schedule("nightly", daily("03:00"), job)
    with pytest.raises(DuplicateName):

        @app.schedule(daily("04:00"))
        def nightly() -> None: ...

    assert list(app._registry.tasks) == ["job"]


@pytest.mark.parametrize("name", ["naïve-café", "日報", "🌙", "a.b", "a:b", "a/b", "a b", "O'Brien; --", "x" * 200])
def test_any_readable_name_will_do_b161(app: Oncron, name: str) -> None:
    @app.schedule(every(hours=1), name=name)
    def job() -> None: ...

    assert list(app._registry.schedules) == [job.name] == [name]


def test_two_spellings_of_one_name_are_one_name_b161(app: Oncron) -> None:
    @app.task(name="cafe\u0301")
    def one() -> None: ...

    with pytest.raises(DuplicateName):

        @app.task(name="caf\u00e9")
        def two() -> None: ...


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800", 3, None])
def test_a_name_that_no_store_could_keep_is_refused(app: Oncron, name: Any) -> None:
    with pytest.raises(InvalidOption, match="task name"):

        @app.task(name=name)
        def job() -> None: ...


# --- schedules -----------------------------------------------------------------------------------


def test_on_a_function_a_schedule_makes_both_of_one_name(app: Oncron) -> None:
    @app.schedule(daily("03:00"), queue="night", overlap="wait")
    def reindex() -> None: ...

    definition = app._registry.schedules["reindex"].definition
    assert (definition.task, definition.queue, definition.overlap) == ("reindex", "night", "wait")
    assert app._registry.tasks["reindex"] is reindex


def test_schedules_stack_on_a_task(app: Oncron) -> None:
    @app.schedule(daily("08:00"), name="day", args={"kind": "day"})
    @app.schedule(daily("18:00"), name="evening", args={"kind": "evening"}, retries=0)
    @app.task(retries=7, timeout=3)
    def report(kind: str) -> None: ...

    assert isinstance(report, Task)
    day, evening = (app._registry.schedules[name].definition for name in ("day", "evening"))
    assert (day.args, day.retries, day.timeout) == ('{"kind":"day"}', 7, 3_000_000)
    assert (evening.args, evening.retries) == ('{"kind":"evening"}', 0)


def test_a_required_parameter_that_args_does_not_fill_is_refused(app: Oncron) -> None:
    with pytest.raises(InvalidArguments, match=r"schedule 'report': task 'report' needs 'kind'; give args="):

        @app.schedule(daily("08:00"))
        def report(kind: str) -> None: ...


@pytest.mark.parametrize(
    ("args", "path"),
    [({"n": "x"}, "$.n"), ({"n": 1, "m": 2}, "$"), ({"n": float("nan")}, "$.n"), (["n"], "$"), ({3: 4}, "$")],
)
def test_args_that_do_not_fit_are_refused_at_definition(app: Oncron, args: Any, path: str) -> None:
    @app.task
    def job(n: int) -> None: ...

    with pytest.raises(InvalidArguments) as raised:
        app.add_schedule("s", daily("08:00"), job, args=args)
    assert raised.value.path == path
    assert app._registry.schedules == {}


@pytest.mark.parametrize("trigger", ["0 3 * * *", None, 5, timedelta(hours=1)])
def test_what_is_no_trigger_is_refused_with_examples(app: Oncron, trigger: Any) -> None:
    with pytest.raises(InvalidTrigger, match=r"write cron\('0 3 \* \* \*'\)"):

        @app.schedule(trigger)
        def job() -> None: ...


class EverySunset(Trigger):
    @property
    def kind(self) -> str:
        return "sunset"

    def next_after_us(self, t: int, /) -> int:
        return t + 86_400_000_000

    def bind(self, schedule: str, timezone: str | None = None) -> EverySunset:
        return self

    def describe(self) -> str:
        return "every sunset"


async def test_g27_a_trigger_of_ones_own_is_refused_as_no_other_replica_could_read_it(app: Oncron) -> None:
    """Its instants may be given to `once`, or runs be enqueued for them."""
    with pytest.raises(InvalidTrigger, match=r"EverySunset.*text that every replica can read; give its instants to"):
        app.add_schedule("s", EverySunset(), "elsewhere")
    with pytest.raises(InvalidTrigger, match="EverySunset"):
        await app.put_schedule("s", EverySunset(), "elsewhere")
    assert (app._registry.schedules, await app.schedules()) == ({}, [])
    instants = [EverySunset().next_after(datetime.now(UTC))]
    app.add_schedule("s", once(*filter(None, instants)), "elsewhere")


def test_once_whose_instants_are_all_older_than_a_day_is_refused(app: Oncron) -> None:
    @app.task
    def job() -> None: ...

    old, recent = datetime.now(UTC) - timedelta(days=2), datetime.now(UTC) - timedelta(hours=1)
    with pytest.raises(InvalidTrigger, match="every instant is more than 86400 s ago"):
        app.add_schedule("old", once(old), job)
    app.add_schedule("recent", once(recent), job)
    app.add_schedule("both", once(old, recent), job)
    app.add_schedule("wide", once(old), job, missed_within=timedelta(days=3))
    assert app._registry.schedules["recent"].definition.missed_within == 86_400_000_000


# --- zones ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_trigger", "of_schedule", "of_app", "wins"),
    [
        ("Asia/Tokyo", None, "Europe/Berlin", "Asia/Tokyo"),
        (None, "America/New_York", "Europe/Berlin", "America/New_York"),
        (None, None, "Europe/Berlin", "Europe/Berlin"),
        ("Asia/Tokyo", "Asia/Tokyo", "Europe/Berlin", "Asia/Tokyo"),
    ],
)
def test_the_zone_is_the_triggers_else_the_schedules_else_the_apps(
    make_app: Callable[..., Oncron], of_trigger: str | None, of_schedule: str | None, of_app: str, wins: str
) -> None:
    app = make_app(timezone=of_app)
    app.add_schedule("s", cron("0 3 * * *", timezone=of_trigger), "elsewhere", timezone=of_schedule)
    assert wins in app._registry.schedules["s"].definition.trigger


def test_without_any_zone_it_is_utc(app: Oncron) -> None:
    app.add_schedule("s", cron("0 3 * * *"), "elsewhere")
    assert "UTC" in app._registry.schedules["s"].definition.trigger


def test_two_different_zones_are_refused(app: Oncron) -> None:
    with pytest.raises(InvalidOption, match="timezone='Asia/Tokyo' and the schedule 'UTC'"):
        app.add_schedule("s", cron("0 3 * * *", timezone="Asia/Tokyo"), "elsewhere", timezone="UTC")


def test_an_unknown_zone_is_refused_with_the_nearest(app: Oncron) -> None:
    with pytest.raises(InvalidTrigger, match="Europe/Berlin"):
        Oncron("memory://", timezone="Europe/Berlni")
    with pytest.raises(InvalidTrigger, match="Europe/Berlin"):
        app.add_schedule("s", daily("03:00"), "elsewhere", timezone="Europe/Berlni")


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retires": 3}, "unknown option 'retires'; did you mean retries"),
        ({"time_out": 3}, "did you mean timeout"),
        ({"nonsense_entirely": 3}, "it takes .*timeout"),
        ({"queue": ""}, "queue name"),
        ({"queue": 3}, "queue name"),
        ({"retries": -1}, "retries=-1: give a number from 0"),
        ({"retries": True}, "retries=True: give a whole number"),
        ({"retries": 1.5}, "whole number"),
        ({"priority": "high"}, "whole number"),
        ({"timeout": 0}, "timeout=0 must be"),
        ({"timeout": timedelta(seconds=-1)}, "must be"),
        ({"timeout": float("nan")}, "finite"),
        ({"timeout": "5m"}, "a duration is a timedelta or a number of seconds"),
        ({"timeout": True}, "a duration is"),
        ({"timeout": 10**12}, "longer than 200 years"),
        ({"retry_on": "OSError"}, "exception class"),
        ({"retry_on": [OSError]}, "exception class"),
        ({"backoff": 3}, "oncron.backoff"),
        ({"executor": "fork"}, "one of 'auto', 'thread', 'process'"),
        ({"max_running": 0}, "from 1"),
        ({"unique": 3}, "unique=3"),
        ({"unique": ""}, "empty key"),
        ({"on_doubt": "panic"}, "'stop', 'continue'"),
    ],
)
def test_a_task_option_it_cannot_have_is_refused(app: Oncron, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):

        @app.task(**options)
        def job() -> None: ...

    assert app._registry.tasks == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"overlapp": "skip"}, "did you mean overlap"),
        ({"overlap": "never"}, "'skip', 'wait', 'queue', 'cancel', 'allow'"),
        ({"missed": "none"}, "'latest', 'all', 'skip'"),
        ({"missed_within": 0}, "missed_within=0"),
        ({"missed_limit": 0}, "from 1"),
        ({"missed_limit": 10**9}, "to 10000"),
        ({"jitter": -5}, "not negative"),
        ({"start_at": datetime(2026, 1, 1)}, "naive datetime; give it a zone"),
        ({"end_at": "tomorrow"}, "aware datetime"),
        ({"start_at": datetime(2026, 2, 1, tzinfo=UTC), "end_at": datetime(2026, 1, 1, tzinfo=UTC)}, "swap them"),
        ({"limit": 0}, "from 1"),
        ({"paused": 1}, "True or False"),
        ({"guard": "lock"}, "'advisory'"),
        ({"guard": "slot:"}, "slot:NAMESPACE"),
        ({"tags": "night"}, r"tags=\['night'\]"),
        ({"backoff": None}, "belongs to the task"),
        ({"max_running": 3}, "belongs to the task"),
    ],
)
def test_a_schedule_option_it_cannot_have_is_refused(app: Oncron, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        app.add_schedule("s", daily("03:00"), "elsewhere", **options)
    assert app._registry.schedules == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"queues": "mail"}, "give a list"),
        ({"queues": []}, "serves none"),
        ({"queues": {"mail": 0}}, r"queues\['mail'\]=0"),
        ({"namespace": "A-b"}, "small letters"),
        ({"lease_for": 0.1}, "at least 0.5 s"),
        ({"stop_within": -1}, "stop_within"),
        ({"release": "v1"}, "whole number"),
        ({"defaults": {"retires": 1}}, "did you mean retries"),
        ({"defaults": {"name": "x"}}, "unknown option 'name'"),
        ({"imports": "shop.jobs"}, r"imports=\['shop.jobs'\]"),
        ({"auto_migrate": None}, "True or False"),
    ],
)
def test_an_app_option_it_cannot_have_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Oncron("memory://", **options)


def test_defaults_reach_tasks_and_schedules_and_give_way_to_their_own(make_app: Callable[..., Oncron]) -> None:
    app = make_app(defaults={"retries": 9, "queue": "slow", "overlap": "queue", "missed": "all"})

    @app.schedule(daily("03:00"), missed="skip", retries=1)
    def job() -> None: ...

    definition = app._registry.schedules["job"].definition
    assert (definition.retries, definition.queue, definition.overlap, definition.missed) == (1, "slow", "queue", "skip")


def test_a_declared_schedule_is_all_its_options(app: Oncron) -> None:
    @app.task
    def job(n: int) -> None: ...

    start = datetime(2026, 1, 1, tzinfo=UTC)
    app.add_schedule(
        "s", every(seconds=5), job, args={"n": 1}, missed="all", missed_within=60, missed_limit=7, overlap="cancel",
        jitter=timedelta(seconds=2), start_at=start, end_at=start + timedelta(days=1), limit=3, paused=True,
        tags=["a", "b"], queue="q", priority=-3, retries=0, timeout=1.5, unique="only",
    )  # fmt: skip
    d = app._registry.schedules["s"].definition
    assert (d.missed, d.missed_within, d.missed_limit, d.overlap) == ("all", 60_000_000, 7, "cancel")
    assert (d.jitter, d.start_at, d.end_at) == (2_000_000, 1_767_225_600_000_000, 1_767_312_000_000_000)
    assert (d.limit, d.paused, d.tags, d.queue, d.priority, d.retries) == (3, True, ("a", "b"), "q", -3, 0)
    assert (d.timeout, d.unique, d.origin, d.args) == (1_500_000, "job\nonly", "code", '{"n":1}')


@pytest.mark.parametrize("event", ["run.failled", "job.*", "", 3])
def test_listening_to_what_does_not_exist_is_refused(app: Oncron, event: Any) -> None:
    with pytest.raises(InvalidOption, match="no such event"):
        app.on(event)


def test_a_thousand_schedules_are_declared_in_no_time(app: Oncron) -> None:
    @app.task
    def job(n: int) -> None: ...

    trigger = every(minutes=1)
    for n in range(1000):
        app.add_schedule(f"s{n}", trigger, job, args={"n": n})
    assert len(app._registry.definitions()) == 1000


def test_a_schedule_decorator_without_its_trigger_is_refused_at_once(make_app: Callable[..., Oncron]) -> None:
    with pytest.raises(InvalidTrigger, match="takes a trigger"):

        @make_app().schedule  # type: ignore[arg-type]
        def report() -> None: ...


def test_an_empty_url_is_no_wish_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="is empty"):
        Oncron("")
    monkeypatch.setenv("ONCRON_STORE", "")
    with pytest.raises(InvalidOption, match="ONCRON_STORE is empty"):
        Oncron()
