# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportIncompatibleMethodOverride=false
# pyright: reportIncompatibleVariableOverride=false
"""The admin's pages of schedules and runs: what the store says, and a button for each thing to do.

Who has the permission to view sees them, who has the one to change may press: `oncron.view_schedule`,
`oncron.change_schedule`, `oncron.view_run`, `oncron.change_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from oncron import Oncron
from oncron._model import RunState
from oncron.contrib.django._project import the_app
from oncron.contrib.django.models import Run, Schedule
from oncron.errors import NotFound, OncronError, WrongKey

_PAGE = 100

Do = Callable[[Oncron, str, str], Coroutine[Any, Any, str]]
"""(app, what it is done to, who does it) -> what to say."""


class _Pages(admin.ModelAdmin):  # pyright: ignore[reportMissingTypeArgument]
    """Of things that are in the store and not in a table of Django's."""

    doings: dict[str, Do]
    listed: Callable[[Oncron, HttpRequest], dict[str, Any]]
    """What the page of all shows."""
    one: Callable[[Oncron, str], dict[str, Any]]
    """What the page of one shows. Raises NotFound."""

    def get_urls(self) -> list[Any]:
        name, view = f"oncron_{self.opts.model_name}", self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=f"{name}_changelist"),
            path("-do-/", view(self.do_view), name=f"{name}_do"),
            path("<path:object_id>/", view(self.one_view), name=f"{name}_change"),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        del request
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        del request, obj
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        del extra_context
        return self._page(request, "list", self.listed)

    def one_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._page(request, "one", lambda app, _: self.one(app, object_id))

    def do_view(self, request: HttpRequest) -> HttpResponse:
        """One button. Django has checked the form's token."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        given = cast("Any", request.POST)
        do, what = self.doings.get(given.get("do", "")), str(given.get("what", ""))
        if str(request.method) != "POST" or do is None:
            raise Http404("no such thing to do")
        app = the_app()
        try:
            messages.success(request, app.sync(do(app, what, str(cast("Any", request).user))))
        except OncronError as error:
            messages.error(request, str(error))
        back = str(given.get("back", ""))
        here = reverse(f"{self.admin_site.name}:oncron_{self.opts.model_name}_changelist")
        return HttpResponseRedirect(f"{here}{back}" if back.startswith("?") else here)

    def _page(
        self, request: HttpRequest, kind: str, read: Callable[[Oncron, HttpRequest], dict[str, Any]]
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        found: dict[str, Any] = {}
        status = 200
        try:
            found = read(the_app(), request)
        except NotFound as error:
            raise Http404(str(error)) from None
        except OncronError as error:
            messages.error(request, str(error))
            status = 503
        query: str = cast("Any", request.GET).urlencode()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "may_change": self.has_change_permission(request),
            "do_url": reverse(f"{self.admin_site.name}:oncron_{self.opts.model_name}_do"),
            "back": f"?{query}" if query else "",
            **found,
        }
        template = f"admin/oncron/{self.opts.model_name}_{kind}.html"
        cast("Any", request).current_app = self.admin_site.name
        return TemplateResponse(request, template, context, status=status)


async def _run_now(app: Oncron, name: str, who: str) -> str:
    run = await app.fire(name, reason=f"{who}, in the admin")
    return f"Run {run.id} of schedule {name} is due now."


async def _pause(app: Oncron, name: str, who: str) -> str:
    await app.pause(name, note=f"{who}, in the admin")
    return f"Schedule {name} is paused."


async def _resume(app: Oncron, name: str, who: str) -> str:
    del who
    await app.resume(name)
    return f"Schedule {name} ticks again, from now on."


async def _retry(app: Oncron, run_id: str, who: str) -> str:
    del who
    run = await app.retry(run_id)
    return f"Run {run_id} is open again." if run.is_new else f"Run {run_id} is open already."


async def _cancel(app: Oncron, run_id: str, who: str) -> str:
    del who
    run = await app.cancel(run_id)
    if run.state is RunState.CANCELLED:
        return f"Run {run_id} is cancelled."
    return f"Run {run_id} is asked to stop." if run.state.is_open else f"Run {run_id} has ended: {run.state.value}."


class ScheduleAdmin(_Pages):
    doings = {"run": _run_now, "pause": _pause, "resume": _resume}  # noqa: RUF012 - as ModelAdmin's own

    def listed(self, app: Oncron, request: HttpRequest) -> dict[str, Any]:
        sought = str(cast("Any", request.GET).get("q", "")).strip().lower()
        every = [
            schedule
            for schedule in app.sync(app.schedules())
            if schedule.status.value != "removed" and sought in f"{schedule.name} {schedule.task}".lower()
        ]
        page = Paginator(every, _PAGE).get_page(cast("Any", request.GET).get("p"))
        return {"title": "Schedules", "page": page, "sought": sought}

    def one(self, app: Oncron, object_id: str) -> dict[str, Any]:
        schedule = app.sync(app.get_schedule(object_id))
        runs = app.sync(app.runs(schedule=object_id, limit=20))
        return {"title": object_id, "schedule": schedule, "runs": runs}


class RunAdmin(_Pages):
    doings = {"retry": _retry, "cancel": _cancel}  # noqa: RUF012 - as ModelAdmin's own

    def listed(self, app: Oncron, request: HttpRequest) -> dict[str, Any]:
        given = {key: str(value) for key, value in cast("Any", request.GET).items() if value}
        where = {key: given[key] for key in ("state", "task", "schedule", "queue") if key in given}
        found: Any = app.runs
        runs = app.sync(found(**where, before=given.get("before"), limit=_PAGE + 1))
        older = urlencode({**where, "before": runs[_PAGE - 1].id}) if len(runs) > _PAGE else ""
        states = [state.value for state in RunState]
        return {"title": "Runs", "runs": runs[:_PAGE], "older": older, "where": where, "states": states}

    def one(self, app: Oncron, object_id: str) -> dict[str, Any]:
        run = app.sync(app.get_run(object_id))
        args, result = _readable(lambda: run.args), _readable(lambda: run.result)
        return {"title": f"Run {object_id}", "run": run, "args": args, "result": result}


def _readable(read: Callable[[], Any]) -> Any:
    """What is encrypted with a key that is not here is said to be so."""
    try:
        return read()
    except WrongKey as error:
        return str(error)


admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(Run, RunAdmin)
