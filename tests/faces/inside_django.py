# ruff: noqa: E402 - what is Django's can be imported once its settings are there
"""What holds inside of a Django project. Run by test_django.py, in a process of its own: settings are a process's.

The project is that of `examples/`, its database a file in $SHOP_FOLDER.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import django
import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
from django.conf import settings

settings.TASKS = {
    "default": {"BACKEND": "oncron.contrib.django.backend.OncronBackend", "OPTIONS": {"retries": 0}, "QUEUES": []},
}
django.setup()

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import Client, override_settings
from django.urls import reverse
from shop.models import Order
from shop.tasks import count, pack

from oncron import Oncron, errors, every
from oncron.contrib.django import _project, app
from oncron.contrib.django._database import store_url
from oncron.contrib.django.apps import serves_with_runserver
from oncron.contrib.django.backend import OncronBackend, TaskResultDoesNotExist, TaskResultStatus
from oncron.contrib.django.management.commands.oncron import own
from oncron.testing import ManualClock
from tests.faces import django_tasks_of_a_shop as shop

WITHIN = 20


@pytest.fixture(scope="module", autouse=True)
def migrated() -> Iterator[None]:
    call_command("migrate", verbosity=0)
    yield
    app._life.at_exit()


@pytest.fixture(scope="module")
def running(migrated: None) -> Iterator[Oncron]:
    app._life.forget_engine()
    with app:
        yield app


def ended(run_id: str) -> Any:
    return app.sync(app.sync(app.get_run(run_id)).wait(WITHIN))


# --- the app and its store --------------------------------------------------------------------


def test_tasks_of_every_installed_app_are_found_and_the_zone_is_djangos() -> None:
    assert {"pack", "count", "heartbeat"} <= app._registry.tasks.keys()
    assert app._registry.timezone == "Europe/Berlin"
    assert _project.the_app() is app


def test_migrate_brings_the_tables_of_the_store_too() -> None:
    assert "oncron_runs" in connection.introspection.table_names()
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_dumpdata_does_not_ask_for_tables_that_are_not_there() -> None:
    out = io.StringIO()
    call_command("dumpdata", "oncron", all=True, stdout=out)
    assert json.loads(out.getvalue()) == []


def database(monkeypatch: pytest.MonkeyPatch, engine: str, **given: Any) -> str:
    complete = {**connections.settings["default"], "ENGINE": f"django.db.backends.{engine}", "NAME": "", **given}
    monkeypatch.setitem(connections.settings, "tried", complete)
    monkeypatch.delattr(connections._connections, "tried", raising=False)
    try:
        return store_url("tried")
    finally:
        if hasattr(connections._connections, "tried"):
            delattr(connections._connections, "tried")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "ann", "HOST": "db", "PORT": 6432}, "postgresql://ann@db:6432/shop"),
        (
            {"NAME": "a/b", "USER": "a@b", "PASSWORD": "p:/@?#%", "HOST": "db"},
            "postgresql://a%40b:p%3A%2F%40%3F%23%25@db/a%2Fb",
        ),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        ({"NAME": "shop", "HOST": "::1", "PORT": "5433"}, "postgresql:///shop?host=%3A%3A1&port=5433"),
        ({"NAME": "shop", "HOST": "", "PORT": "5433"}, "postgresql:///shop?port=5433"),
        (
            {"NAME": "shop", "HOST": "a,b", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 3}},
            "postgresql:///shop?sslmode=require&host=a%2Cb",
        ),
        (
            {"NAME": "shop", "OPTIONS": {"assume_role": "app user", "options": "-c work_mem=8MB"}},
            "postgresql:///shop?options=-c%20work_mem%3D8MB%20-c%20role%3Dapp%5C%20user",
        ),
        ({"OPTIONS": {"service": "shop", "passfile": ".pgpass"}}, "postgresql:///?service=shop&passfile=.pgpass"),
    ],
)
def test_djangos_postgresql_is_a_url(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], url: str) -> None:
    assert database(monkeypatch, "postgresql", **given) == url


def test_the_parts_of_the_url_are_what_libpq_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from psycopg.conninfo import conninfo_to_dict

    given = {"NAME": "a/b", "USER": "a@b", "PASSWORD": "p:/@?#% ä", "HOST": "/run/my pg", "PORT": "5433"}
    url = database(monkeypatch, "postgresql", **given)
    assert conninfo_to_dict(url) == {
        "dbname": "a/b", "user": "a@b", "password": "p:/@?#% ä", "host": "/run/my pg", "port": "5433",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["/tmp/a b.db", "file:/tmp/a%20b.db?cache=shared"])
def test_djangos_sqlite_is_a_url(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert database(monkeypatch, "sqlite3", NAME=name) == "sqlite:////tmp/a b.db"


@pytest.mark.parametrize("name", ["", ":memory:", "file:memorydb_default?mode=memory&cache=shared"])
def test_sqlite_in_memory_is_refused_when_it_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(errors.InvalidOption, match=r"no other process sees; in tests use .*ManualClock"):
        database(monkeypatch, "sqlite3", NAME=name)
    with monkeypatch.context() as patch:
        patch.setitem(connections["default"].settings_dict, "NAME", ":memory:")
        made = _project._make(_project.wishes())  # a project whose tests have such a database starts
        with pytest.raises(errors.InvalidOption, match="no other process sees"):
            made.sync(made.runs())
        _project.migrate_with("default")


def test_an_engine_that_is_no_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        errors.InvalidOption, match=r"DATABASES\['tried'\] is not configured, where .* a URL: postgresql"
    ):
        database(monkeypatch, "dummy")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"NAMESPASE": "x"}, r"settings.ONCRON has 'NAMESPASE', .*; did you mean 'NAMESPACE'\?"),
        ({"namespace": "x"}, r"did you mean 'NAMESPACE'\?"),
        ({"STORE": "memory://", "DATABASE": "default"}, "STORE and DATABASE; the store is one of them"),
        ({"DATABASE": "defualt"}, r"settings.DATABASES has none of that name; did you mean 'default'\?"),
        ({"DATABASE": 3}, "give the name of one"),
        ({"STORE": "mysql://x"}, "unknown scheme 'mysql'"),
        ({"CONCURRENCY": 0}, "concurrency=0: give a number from 1"),
        ({"AUTODISCOVER": 3}, "give True for 'tasks'"),
        ({"RUNSERVER": 1}, "give True or False"),
        ([], "write ONCRON = "),
    ],
)
def test_wrong_settings_say_what_to_write(given: Any, says: str) -> None:
    with override_settings(ONCRON=given), pytest.raises(errors.InvalidOption, match=says):
        _project._make(_project.wishes())


def test_settings_are_the_parameters_of_the_app() -> None:
    given = {"STORE": "memory://", "QUEUES": {"mail": 2}, "CONCURRENCY": 3, "LIFESPAN": "shop.nothing.here"}
    with override_settings(ONCRON=given):
        made = _project._make(_project.wishes())
    assert (made._settings.queues, made._settings.concurrency) == ({"mail": 2}, 3)
    with pytest.raises(errors.InvalidOption, match=r"ONCRON\['LIFESPAN'\] = 'shop.nothing.here'"):
        made.__enter__()


def test_a_schedule_may_run_a_task_of_django() -> None:
    adding = app._registry.tasks["tests.faces.django_tasks_of_a_shop.add"]
    with ManualClock(app) as clock:
        app.add_schedule("adding", every(minutes=1), adding, args={"args": [1], "kwargs": {"b": 2}})
        runs = app.sync(clock.advance(60))
        assert [run.result for run in runs if run.schedule == "adding"] == [[1, 2]]


# --- runs -------------------------------------------------------------------------------------


def test_tasks_use_models_in_threads_and_on_the_loop(running: Oncron) -> None:
    order = Order.objects.create(item="lamp")
    assert ended(pack.enqueue_sync(order.id).id) == "lamp"
    order.refresh_from_db()
    assert order.packed
    assert ended(count.enqueue_sync().id) == Order.objects.count()


def test_connections_that_are_too_old_do_not_outlive_their_run(running: Oncron) -> None:
    seen: list[Any] = []

    def peek() -> None:
        seen.append((threading.current_thread(), connections["default"].connection))
        Order.objects.count()
        seen.append(connections["default"])

    with app._registry.kept():
        task = app.task(peek)
        ended(task.enqueue_sync().id)
    assert seen[0][0] is not threading.main_thread()
    assert seen[1].connection is None, "with CONN_MAX_AGE 0 it is closed"


def test_an_order_and_its_run_are_there_together_or_not_at_all(running: Oncron) -> None:
    with transaction.atomic():
        order = Order.objects.create(item="desk")
        run = pack.options(connection=connection).enqueue_sync(order.id)
    assert ended(run.id) == "desk"

    def fail() -> None:
        with transaction.atomic():
            order = Order.objects.create(item="chair")
            left.append(pack.options(connection=connection).enqueue_sync(order.id).id)
            raise ZeroDivisionError

    left: list[str] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(errors.NotFound):
        app.sync(app.get_run(left[0]))
    assert not Order.objects.filter(item="chair").exists()


def test_an_async_view_joins_a_transaction_in_djangos_thread(running: Oncron) -> None:
    def place() -> str:
        with transaction.atomic():
            order = Order.objects.create(item="sofa")
            return pack.options(connection=connection).enqueue_sync(order.id).id

    async def view() -> Any:
        run = await app.get_run(await sync_to_async(place)())
        return await run.wait(WITHIN)

    assert asyncio.run(view()) == "sofa"


def test_a_worker_process_sets_django_up_before_it_imports_a_task(running: Oncron) -> None:
    assert ended(shop.count_apart.enqueue_sync().id) == Order.objects.count()


# --- commands ---------------------------------------------------------------------------------


def test_a_command_inside_of_a_replica_leaves_it_running(running: Oncron, capsys: pytest.CaptureFixture[str]) -> None:
    assert "heartbeat" in called(capsys, "schedules")
    assert ended(count.enqueue_sync().id) == Order.objects.count()


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    call_command("oncron", *arguments)
    return capsys.readouterr().out


def test_the_commands_of_oncron_need_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert "oncron.contrib.django:app: 1 schedule" in called(capsys, "check")
    assert "enqueued" in called(capsys, "enqueue", "count")
    assert "every 15 minutes" in called(capsys, "explain", "*/15 * * * *").lower()


def test_a_command_that_fails_is_a_command_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="oncron fire nobodys failed"):
        call_command("oncron", "fire", "nobodys")
    assert "no schedule 'nobodys'" in capsys.readouterr().err


def test_the_options_of_manage_py_are_not_the_commands() -> None:
    assert own(["runs", "--settings", "a.b", "--json", "--pythonpath=x", "--", "--settings"]) == [
        "runs", "--json", "--", "--settings",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "run_main", "serves"),
    [
        (["manage.py", "runserver"], "true", True),
        (["manage.py", "runserver"], None, False),
        (["manage.py", "runserver", "--noreload"], None, True),
        (["manage.py", "migrate"], None, False),
        (["gunicorn"], None, False),
    ],
)
def test_only_the_process_that_serves_may_run_beside_runserver(
    argv: list[str], run_main: str | None, serves: bool
) -> None:
    assert serves_with_runserver(argv, run_main) is serves


# --- the admin --------------------------------------------------------------------------------


def client(name: str, *permissions: str, superuser: bool = False) -> Client:
    user, _ = User.objects.get_or_create(username=name, is_staff=True, is_superuser=superuser)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="oncron"))
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    return browser


def page(browser: Client, url: str, status: int = 200) -> str:
    answer = browser.get(url)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


def press(browser: Client, model: str, do: str, what: str, *, token: bool = True) -> Any:
    given = {"do": do, "what": what}
    if token:
        given["csrfmiddlewaretoken"] = browser.cookies["csrftoken"].value
    return browser.post(reverse(f"admin:oncron_{model}_do"), given, follow=token)


def test_the_admin_lists_schedules_and_its_buttons_do_what_they_say(running: Oncron) -> None:
    boss = client("boss", superuser=True)
    assert "Scheduled jobs" in page(boss, reverse("admin:index"))
    listed = page(boss, reverse("admin:oncron_schedule_changelist"))
    assert "every second" in listed
    assert "Run now" in listed

    assert "Schedule heartbeat is paused." in press(boss, "schedule", "pause", "heartbeat").content.decode()
    paused = app.sync(app.get_schedule("heartbeat"))
    assert (paused.paused, paused.note) == (True, "boss, in the admin")
    assert "is due now" in press(boss, "schedule", "run", "heartbeat").content.decode()
    assert "ticks again" in press(boss, "schedule", "resume", "heartbeat").content.decode()
    assert not app.sync(app.get_schedule("heartbeat")).paused
    assert "No schedule &#x27;nobodys&#x27;" in press(boss, "schedule", "run", "nobodys").content.decode()
    assert "Newest runs" in page(boss, reverse("admin:oncron_schedule_change", args=["heartbeat"]))
    page(boss, reverse("admin:oncron_schedule_change", args=["nobodys"]), 404)


def test_the_admin_lists_runs_and_opens_them_again(running: Oncron) -> None:
    boss = client("boss", superuser=True)
    with pytest.raises(errors.RunFailed):
        ended(pack.options(retries=0).enqueue_sync(10**9).id)
    failed = app.sync(app.runs(task="pack", state="failed"))[0]
    listed = page(boss, f"{reverse('admin:oncron_run_changelist')}?state=failed&task=pack")
    assert failed.id in listed
    assert "DoesNotExist" in page(boss, reverse("admin:oncron_run_change", args=[failed.id]))
    assert "is open again" in press(boss, "run", "retry", failed.id).content.decode()
    later = pack.options(delay=3600).enqueue_sync(1)
    assert "is cancelled" in press(boss, "run", "cancel", later.id).content.decode()
    assert "give one of" in page(boss, f"{reverse('admin:oncron_run_changelist')}?state=nothing", 503)


def test_a_run_with_markup_in_it_is_shown_as_text(running: Oncron) -> None:
    boss = client("boss", superuser=True)
    run = app.sync(app.enqueue("<script>alert(1)</script>", args={"a": "<img src=x>"}, delay=3600))
    for url in (reverse("admin:oncron_run_changelist"), reverse("admin:oncron_run_change", args=[run.id])):
        shown = page(boss, url)
        assert "<script>alert(1)" not in shown
        assert "<img src=x" not in shown
        assert "&lt;script&gt;alert(1)" in shown


def test_arguments_under_another_key_are_said_to_be_so(running: Oncron) -> None:
    boss = client("boss", superuser=True)
    secret = Oncron(store_url("default"), encryption={"a": b"k" * 32})
    run = secret.sync(secret.enqueue("pay", args={"card": "4711"}, delay=3600))
    secret._life.at_exit()
    shown = page(boss, reverse("admin:oncron_run_change", args=[run.id]))
    assert "the arguments of run" in shown
    assert "4711" not in shown


def test_the_admin_asks_for_permissions_and_for_the_forms_token(running: Oncron) -> None:
    schedules = reverse("admin:oncron_schedule_changelist")
    page(client("nobody"), schedules, 403)
    reader = client("reader", "view_schedule")
    assert "Run now" not in page(reader, schedules)
    page(reader, reverse("admin:oncron_run_changelist"), 403)
    page(reader, reverse("admin:index"))
    boss = client("boss", superuser=True)
    page(boss, schedules)
    reader.cookies["csrftoken"] = boss.cookies["csrftoken"].value
    assert press(reader, "schedule", "pause", "heartbeat").status_code == 403
    assert press(boss, "schedule", "pause", "heartbeat", token=False).status_code == 403
    assert Client().get(schedules).status_code == 302
    assert not app.sync(app.get_schedule("heartbeat")).paused
    assert boss.get(reverse("admin:oncron_schedule_do")).status_code == 404


# --- django.tasks -----------------------------------------------------------------------------


def result(enqueued: Any) -> Any:
    try:
        ended(enqueued.id)
    except errors.RunFailed:
        pass
    enqueued.refresh()
    return enqueued


def test_tasks_of_django_run_with_their_arguments_and_their_result_is_kept(running: Oncron) -> None:
    done = result(shop.add.enqueue(1, b=[2, {"c": "ä"}]))
    assert (done.status, done.return_value) == (TaskResultStatus.SUCCESSFUL, [1, [2, {"c": "ä"}]])
    assert (done.args, done.kwargs, done.attempts, done.errors) == ([1], {"b": [2, {"c": "ä"}]}, 1, [])
    assert done.enqueued_at <= done.started_at <= done.finished_at
    again = shop.add.get_result(done.id)
    assert (again.return_value, again.task.func) == (done.return_value, shop.add.func)
    assert app.sync(app.get_run(done.id)).task == "tests.faces.django_tasks_of_a_shop.add"


def test_async_tasks_and_those_that_take_the_context_run(running: Oncron) -> None:
    assert result(shop.double.enqueue(21)).return_value == 42
    told = result(shop.told.enqueue("x"))
    assert told.return_value == [told.id, 1, "RUNNING", "x"]


def test_an_error_is_in_the_result(running: Oncron) -> None:
    failed = result(shop.fail.enqueue())
    assert failed.status == TaskResultStatus.FAILED
    assert failed.errors[0].exception_class is shop.Refused
    assert "no stock" in failed.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = failed.return_value
    unserialisable = result(shop.makes_a_set.enqueue())
    assert unserialisable.errors[0].exception_class is TypeError


def test_signals_tell_of_a_task(running: Oncron) -> None:
    from oncron.contrib.django import backend

    heard: list[tuple[str, str]] = []
    names = {backend.task_enqueued: "enqueued", backend.task_started: "started", backend.task_finished: "finished"}

    def listen(signal: Any, task_result: Any, **_: Any) -> None:
        heard.append((names[signal], task_result.status))

    for signal in names:
        signal.connect(listen)
    result(shop.add.enqueue(1, b=2))
    for signal in names:
        signal.disconnect(listen)
    assert heard == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


def test_queue_priority_and_time_are_those_of_the_run() -> None:
    from datetime import UTC, datetime

    at = datetime(2031, 1, 1, tzinfo=UTC)
    asked = shop.add.using(queue_name="mail", priority=50, run_after=at).enqueue(1, b=2)
    run = app.sync(app.get_run(asked.id))
    assert (run.queue, run.priority, run.due_at) == ("mail", 50, at)
    assert asked.status == TaskResultStatus.READY
    app.sync(app.cancel(asked.id))
    asked.refresh()
    assert (asked.status, asked.errors[0].exception_class) == (TaskResultStatus.FAILED, errors.RunFailed)


def test_enqueued_inside_of_atomic_a_task_exists_only_if_it_commits(running: Oncron) -> None:
    left: list[Any] = []

    def fail() -> None:
        with transaction.atomic():
            Order.objects.create(item="never")
            left.append(shop.add.enqueue(1, b=2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(TaskResultDoesNotExist):
        shop.add.get_result(left[0].id)
    with transaction.atomic():
        Order.objects.create(item="shelf")
        kept = shop.add.enqueue(1, b=2)
    assert result(kept).return_value == [1, 2]


def test_async_code_enqueues_and_reads_results(running: Oncron) -> None:
    async def view() -> Any:
        enqueued = await shop.double.aenqueue(4)
        await (await app.get_run(enqueued.id)).wait(WITHIN)
        return (await shop.double.aget_result(enqueued.id)).return_value

    assert asyncio.run(view()) == 8


def test_results_of_nobody_do_not_exist() -> None:
    for unknown in ("nobodys", app.sync(app.enqueue("pack", args={"order_id": 1}, delay=3600)).id):
        with pytest.raises(TaskResultDoesNotExist):
            shop.add.get_result(unknown)


def test_arguments_that_are_no_json_are_refused_before_anything_is_written() -> None:
    with pytest.raises(TypeError):
        shop.add.enqueue(object(), b=2)


def test_wrong_options_of_the_backend_say_what_to_write() -> None:
    with pytest.raises(errors.InvalidOption, match=r"TASKS\['x'\]\['OPTIONS'\]: unknown option 'retrys'; .*retries"):
        OncronBackend("x", {"OPTIONS": {"retrys": 1}})
