"""Prometheus metrics of an app: `pip install 'oncron[metrics]'`. Names and labels: docs/reference/metrics.md.

Counters and histograms tell what this replica did, from its events; gauges are read from the store when somebody
scrapes, so every replica tells the same, a restarted one included. Nothing waits for a scrape, or for this module.
"""

from __future__ import annotations

import errno
import importlib.util
from typing import TYPE_CHECKING, Any, cast

from oncron.errors import InvalidOption
from oncron.metrics._health import Wsgi, with_probes

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from oncron.metrics._collector import Collector

__all__ = ["Server", "register", "serve"]


def register(app: Any, registry: CollectorRegistry | None = None, *, max_schedules: int = 1000) -> Collector:
    """Metrics of `app`, an Oncron, in `registry` (prometheus_client's own if left out): expose that as you do already.
    The answer's `close()` takes them out again. Of more than `max_schedules` schedules, and of more than 1000 tasks,
    the rest has no labels of its own.

    Raises InvalidOption if prometheus-client is not installed, or for an app that has metrics in that registry."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise InvalidOption("prometheus-client is not installed: pip install 'oncron[metrics]'")
    if not hasattr(app, "_desk"):
        raise InvalidOption(f"register({app!r}): give the app, an Oncron")
    if isinstance(max_schedules, bool) or not isinstance(max_schedules, int) or max_schedules < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"max_schedules={max_schedules!r}: give a whole number, 0 for none")
    from prometheus_client import REGISTRY

    from oncron.metrics._collector import Collector

    collector = Collector(app, registry or REGISTRY, max_schedules)
    try:
        collector.registry.register(collector)
    except ValueError:
        raise InvalidOption("this registry has oncron's metrics already; close() those first") from None
    collector.listen()
    return collector


class Server:
    """Metrics over HTTP, until `close`."""

    def __init__(self, http: Any, thread: Any, collector: Collector) -> None:
        self._http, self._thread, self._collector = http, thread, collector
        self.port: int = http.server_port

    def close(self) -> None:
        """The port is free again."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._collector.close()


def serve(app: Any, port: int, *, host: str = "0.0.0.0", registry: CollectorRegistry | None = None) -> Server:  # noqa: S104 - Prometheus scrapes from elsewhere
    """`register`, and serve them at http://host:port/metrics from a thread of its own; port 0 takes a free one.

    For probes it answers 200 or 503 as well: `/healthz` while the replica runs, its loop turns and the store answered
    within `lease_for`; `/livez` while the loop turns, whatever the store does.

    Raises InvalidOption if the port is in use or may not be used, and as `register` does."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"metrics port {port!r}: give a number from 0 (any free one) to 65535")
    collector = register(app, registry)
    from prometheus_client import start_http_server

    try:
        http, thread = start_http_server(port, host, registry=collector.registry)
    except OSError as error:
        collector.close()
        raise InvalidOption(f"metrics port {port} {_why(error)}; give another, or 0 for any free one") from None
    http.set_app(with_probes(app, cast("Wsgi", http.get_app())))
    return Server(http, thread, collector)


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "is in use by another process"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "may not be used by this user"
    return f"cannot be used ({error.strerror or error})"
