"""Fixtures for every test: real servers, private to this run.

postgres_url       a fresh, empty database; dropped afterwards
postgres_errors    call it: the ERROR lines the server logged for that database
postgres_server    the shared server itself (one a run, one a worker under xdist): do not stop it
own_postgres       a server of the test's own, to stop, kill and restart
pgbouncer          a pooler in transaction mode before postgres_server
redis_server       the shared Redis, valkey_server the shared Valkey: every test takes a namespace of its own
own_redis          a Redis, then a Valkey, of the test's own, to stop, kill and restart
durable_redis      the same with appendfsync always: what it answered it has on disk
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import pytest

from tests.pgbouncer import PgBouncer
from tests.redis_server import RedisServer
from tests.servers import PostgresServer, ServerMissing


def pytest_configure() -> None:
    """A run in the background is started with SIGINT ignored, and so would be everything that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _start_postgres() -> PostgresServer:
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        missed(missing)
    server.start()
    return server


def start_redis(kind: str, settings: Mapping[str, str] | None = None) -> RedisServer:
    try:
        server = RedisServer(kind, settings)
    except ServerMissing as missing:
        missed(missing)
    server.start()
    return server


def missed(missing: ServerMissing) -> NoReturn:
    """CI fails without a server; a laptop skips, with the reason."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must bring its servers: {missing}", pytrace=False)
    pytest.skip(str(missing))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = _start_postgres()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def postgres_shared_url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
def postgres_errors(postgres_server: PostgresServer, postgres_url: str) -> Callable[[], list[str]]:
    return lambda: postgres_server.errors(postgres_url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    server = _start_postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    try:
        pooler = PgBouncer(postgres_server.port)
    except ServerMissing as missing:
        missed(missing)
    with pooler:
        yield pooler


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = start_redis("redis")
    yield server
    server.close()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    server = start_redis("valkey")
    yield server
    server.close()


@pytest.fixture(params=["redis", "valkey"])
def durable_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = start_redis(request.param, {"appendfsync": "always"})
    yield server
    server.close()


@pytest.fixture(params=["redis", "valkey"])
def own_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = start_redis(request.param)
    yield server
    server.close()
