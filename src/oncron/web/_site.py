"""The ASGI app: what is asked for where, and what goes wrong, told in a sentence."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from oncron._app import Oncron
from oncron._clock import SECOND
from oncron.errors import DefinitionError, NotFound, NotSupported, Occupied, OncronError, Stopped, StoreError
from oncron.web import _actions, _api, _fleet, _pages_of_runs, _pages_of_schedules
from oncron.web._guard import HEADERS, Auth, Guard, Refused, csrf_of, set_csrf
from oncron.web._live import Live
from oncron.web._page import Asked, Pages
from oncron.web._reading import Reading

log = logging.getLogger("oncron.web")

Handler = Callable[[Asked], Awaitable[Response]]

PAGES: Mapping[str, Handler] = {
    "/schedules": _pages_of_schedules.schedules,
    "/schedule": _pages_of_schedules.schedule,
    "/runs": _pages_of_runs.runs,
    "/run": _pages_of_runs.run,
    "/queues": _fleet.queues,
    "/replicas": _fleet.replicas,
    "/locks": _fleet.locks,
    "/batches": _fleet.batches,
    "/batch": _fleet.batch,
    "/load": _fleet.load,
    "/api": _api.page,
}
FORMS: Mapping[str, Handler] = {f"/{name}": _actions.form(name) for name in _actions.ACTIONS}

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_RETRY_AFTER = {"retry-after": "5"}


class Dashboard:
    """An ASGI app. It may be mounted, or served by itself."""

    def __init__(
        self,
        app: Oncron,
        *,
        auth: Auth | None = None,
        read_only: bool = False,
        title: str = "oncron",
        hosts: Sequence[str] | None = None,
    ) -> None:
        self._reading = Reading(app)
        self._live = Live(self._reading)
        self._guard = Guard(auth, read_only=read_only, hosts=hosts)
        self._pages = Pages(self._reading, self._live, read_only=read_only, title=title)
        self._files = _static()
        self._get: Mapping[str, Handler] = {**PAGES, **_api.READS, "/": _home, "/events": self._events}
        self._post: Mapping[str, Handler] = {**FORMS, **_api.WRITES}

    def close(self) -> None:
        """End the event streams: for a server that stops."""
        self._live.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live_on(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            response = await self._answer(request)
            for name, value in HEADERS.items():
                response.headers[name] = value
            response.headers.setdefault("cache-control", "no-store")
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live_on(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
        self.close()
        await send({"type": "lifespan.shutdown.complete"})

    # --- answering --------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        path = path_of(request)
        csrf, is_new = csrf_of(request)
        asked = Asked(self._pages, request, path, csrf=csrf)
        try:
            response = await self._routed(asked)
        except ClientDisconnect:
            return Response(status_code=400)
        except Refused as refused:
            response = asked.error(refused.status, str(refused))
            response.headers.update(refused.headers)
        except OncronError as error:
            status = _status(error)
            response = asked.error(status, str(error))
            if status == 503:
                response.headers.update(_RETRY_AFTER)
        except Exception:
            log.exception("the dashboard could not answer %s %s", request.method, path)
            response = asked.error(500, "this page has a fault; the log of the dashboard says where")
        if is_new and asked.shows_forms:
            set_csrf(response, request, csrf)
        return response

    async def _routed(self, asked: Asked) -> Response:
        path, method = asked.path, asked.request.method
        if path == "/healthz" and method in ("GET", "HEAD"):
            return await self._health()
        user = await self._guard.user(asked.request)
        if isinstance(user, Response):
            return user
        asked.user, asked.admitted = user, True
        if path.startswith("/static/") and method in ("GET", "HEAD"):
            return self._file(asked, path.removeprefix("/static/"))
        if method in ("GET", "HEAD") and (read := self._get.get(path)):
            return await read(asked)
        if method == "POST" and (write := self._post.get(path)):
            asked.given = await self._guard.wish(asked.request)
            return await write(asked)
        if path in self._get or path in self._post:
            allowed = "POST" if path in self._post else "GET, HEAD"
            raise Refused(405, f"{method} is not for {path}; it takes {allowed}", {"allow": allowed})
        raise Refused(404, f"there is no page {path}")

    async def _health(self) -> Response:
        """For probes, without authentication: whether pages can be shown."""
        try:
            await self._reading.ask(lambda looks: looks.now(), within=2 * SECOND)
        except OncronError:
            return JSONResponse({"status": "store does not answer"}, 503, _RETRY_AFTER)
        return JSONResponse({"status": "ok"})

    async def _events(self, asked: Asked) -> Response:
        del asked
        if self._live.is_full:
            raise Refused(503, "too many pages are open at once; this one is not kept up to date")
        return StreamingResponse(
            self._live.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    def _file(self, asked: Asked, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            raise Refused(404, f"there is no file {name!r}")
        content, kind, tag = found
        headers = {"etag": tag, "cache-control": "no-cache"}
        if asked.request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)


async def _home(asked: Asked) -> Response:
    # Where it is mounted may be asked for without the slash at its end: then relative is beside it.
    path: str = asked.request.scope["path"]
    return Response(status_code=307, headers={"location": "schedules" if path.endswith("/") else f"{path}/schedules"})


def path_of(request: Request) -> str:
    """Below where the dashboard is mounted."""
    path, root = request.scope["path"], request.scope.get("root_path", "")
    if root and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    return path or "/"


def _status(error: OncronError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Occupied):
        return 409
    if isinstance(error, DefinitionError):
        return 400
    if isinstance(error, NotSupported):
        return 501
    return 503 if isinstance(error, StoreError | Stopped) else 500


def _static() -> dict[str, tuple[bytes, str, str]]:
    """By name: content, kind, tag. Read once: nothing of a path that is asked for reaches the file system."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for file in files("oncron.web").joinpath("static").iterdir():
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return found
