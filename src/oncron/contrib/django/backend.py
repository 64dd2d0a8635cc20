# ruff: noqa: SLF001
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateUsage=false
"""A backend of Django's Tasks (Django 6.0, and the package django-tasks for earlier ones):

    TASKS = {"default": {"BACKEND": "oncron.contrib.django.backend.OncronBackend"}}

What `@task` of Django defines is then a task of the project's app, by its dotted path, and `manage.py oncron run`
executes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, cast

from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from oncron import RunContext, _options as check
from oncron._clock import from_us
from oncron._model import RunRecord, RunState
from oncron._task import Task as OncronTask
from oncron.contrib.django._project import the_app, wishes
from oncron.errors import InvalidOption, NotFound

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus  # pyright: ignore[reportMissingImports]
    from django.tasks.backends.base import BaseTaskBackend  # pyright: ignore[reportMissingImports]
    from django.tasks.base import Task, TaskError  # pyright: ignore[reportMissingImports]
    from django.tasks.exceptions import TaskResultDoesNotExist  # pyright: ignore[reportMissingImports]
    from django.tasks.signals import task_enqueued, task_finished, task_started  # pyright: ignore[reportMissingImports]
except ImportError:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ImportError:
        raise InvalidOption(
            "oncron.contrib.django.backend needs the Tasks of Django 6.0, or for earlier ones: pip install django-tasks"
        ) from None

_OF_TASKS = frozenset({"backoff", "max_running", "on_doubt", "retries", "retry_on", "timeout"})
_JOIN = "join_transaction"
_STATUS = {
    RunState.PENDING: TaskResultStatus.READY,
    RunState.RUNNING: TaskResultStatus.RUNNING,
    RunState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}
_LAST_WORDS = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)


class OncronBackend(BaseTaskBackend):  # pyright: ignore[reportGeneralTypeIssues, reportUntypedBaseClass]
    """OPTIONS are those of oncron's tasks (`retries`, `timeout`, `backoff`, `retry_on`, `max_running`, `on_doubt`), for
    every task of this backend; and `join_transaction`, True if not given: inside of `transaction.atomic()` on the
    database that is the store, a task is enqueued if, and only if, that commits.

    Raises InvalidOption.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        given = cast("Mapping[str, Any]", self.options)
        check.known(given, _OF_TASKS | {_JOIN}, f"TASKS[{alias!r}]['OPTIONS']")
        self._join = check.truth(given.get(_JOIN, True), _JOIN)
        self._options = {name: value for name, value in given.items() if name != _JOIN}

    def validate_task(self, task: Any) -> None:
        """Called where a task is defined, too: so that a worker that has imported it, has it."""
        super().validate_task(task)
        self._known(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Raises TypeError for arguments that are no JSON, and what `enqueue_sync` raises."""
        self.validate_task(task)
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        options: dict[str, Any] = {"queue": task.queue_name, "priority": task.priority, "at": run_after}
        asked = self._known(task).options(**options, connection=self._open_transaction())
        run = cast("Any", asked).enqueue_sync(args=_plain(list(args)), kwargs=_plain(dict(kwargs)))
        result = self._result(task, run.record, run.args)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        app = the_app()
        try:
            run = app.sync(app.get_run(result_id))
            task: Any = import_string(run.task)
        except (NotFound, ImportError, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        if not isinstance(task, Task):
            raise TaskResultDoesNotExist(result_id)
        result = self._result(task, run.record, run.args)
        if run.state is RunState.SUCCEEDED:
            object.__setattr__(result, "_return_value", run.result)
        return result

    def _open_transaction(self) -> Any:
        """The connection to join, or None."""
        alias = wishes().database if self._join else None
        if alias is None or not connections[alias].in_atomic_block:
            return None
        return connections[alias]

    def _known(self, task: Any) -> OncronTask[..., Any]:
        """The task of the app that executes it, made when it is first seen."""
        app, name = the_app(), str(task.module_path)
        known = app._registry.tasks.get(name)
        if known is None:
            known = app.task(self._runner(task), name=name, queue=task.queue_name, **cast("Any", self._options))
        return cast("OncronTask[..., Any]", known)

    def _runner(self, task: Any) -> Callable[..., Any]:
        def begin(ctx: RunContext[Any], given: dict[str, Any]) -> tuple[Any, list[Any]]:
            record = ctx._execution.run
            result = self._result(task, record, given, status=TaskResultStatus.RUNNING)
            at = from_us(ctx._execution.claimed_at)
            _set(result, started_at=result.started_at or at, last_attempted_at=at)
            task_started.send(type(self), task_result=result)
            first = [TaskContext(task_result=result)] if task.takes_context else []
            return result, [*first, *given["args"]]

        def end(ctx: RunContext[Any], result: Any, value: Any) -> Any:
            value, at = _plain(value), from_us(ctx._execution.store_now())
            _set(result, status=TaskResultStatus.SUCCESSFUL, _return_value=value, finished_at=at)
            task_finished.send(type(self), task_result=result)
            return value

        def fail(ctx: RunContext[Any], result: Any, error: BaseException) -> None:
            kind = type(error)
            result.errors.append(TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=""))
            if ctx.is_last_attempt:
                _set(result, status=TaskResultStatus.FAILED, finished_at=from_us(ctx._execution.store_now()))
                task_finished.send(type(self), task_result=result)

        if iscoroutinefunction(task.func):

            async def on_loop(ctx: RunContext[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
                result, first = begin(ctx, {"args": args, "kwargs": kwargs})
                try:
                    return end(ctx, result, await task.func(*first, **kwargs))
                except Exception as error:
                    fail(ctx, result, error)
                    raise

            return on_loop

        def in_thread(ctx: RunContext[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
            result, first = begin(ctx, {"args": args, "kwargs": kwargs})
            try:
                return end(ctx, result, task.func(*first, **kwargs))
            except Exception as error:
                fail(ctx, result, error)
                raise

        return in_thread

    def _result(self, task: Any, record: RunRecord, given: Mapping[str, Any], status: Any = None) -> Any:
        started = None if record.started_at is None else from_us(record.started_at)
        return TaskResult(
            task=task,
            id=record.id,
            status=status or _STATUS.get(record.state, TaskResultStatus.FAILED),
            enqueued_at=from_us(record.created_at),
            started_at=started,
            finished_at=None if record.ended_at is None else from_us(record.ended_at),
            last_attempted_at=started,
            args=list(given["args"]),
            kwargs=dict(given["kwargs"]),
            backend=self.alias,
            errors=_errors(record),
            worker_ids=[record.worker or "unknown"] * record.attempt,
        )


def _errors(record: RunRecord) -> list[Any]:
    """The newest error; of a run that was lost or cancelled, the reason."""
    if record.error is not None:
        names = _LAST_WORDS.findall(record.error)
        name = names[-1] if names else "Exception"
        path = name if "." in name else f"builtins.{name}"
        return [TaskError(exception_class_path=path, traceback=record.error)]
    if record.state in (RunState.PENDING, RunState.RUNNING, RunState.SUCCEEDED):
        return []
    why = f"{record.state.value}: {record.reason or ''}"
    return [TaskError(exception_class_path="oncron.errors.RunFailed", traceback=why)]


def _plain(value: Any) -> Any:
    """As JSON has it. Raises TypeError for what it has not, as Django's own backends do."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    raise TypeError(f"{value!r} is a {type(value).__name__}, and JSON has none: give its id, text or parts")


def _set(result: Any, **fields: Any) -> None:
    """Results are frozen for their users; backends are their makers."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
