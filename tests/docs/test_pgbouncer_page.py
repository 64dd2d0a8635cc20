"""The page on PgBouncer, followed with one: its configuration, its URLs, its table."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncron import Oncron, every, locked_run
from oncron.errors import StoreUnsafe
from tests.conftest import missed
from tests.docs.snippets import REPOSITORY, run, write_files
from tests.pgbouncer import PgBouncer
from tests.servers import ServerMissing

pytest.importorskip("psycopg", reason="the PostgreSQL driver is an extra: pip install '.[postgres]'")

PAGE = REPOSITORY / "docs" / "how-to" / "pgbouncer.md"


@pytest.fixture
def pooled(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """The test's database by way of a PgBouncer that is configured as the page says, but for places and passwords."""
    write_files(PAGE, tmp_path)
    said = (tmp_path / "pgbouncer.ini").read_text(encoding="utf-8")
    host, port, database = re.fullmatch(r"postgresql://[^@]*@([^:/]+):(\d+)/(\w+)", postgres_url).groups()  # type: ignore[union-attr]
    try:
        pgbouncer = PgBouncer(int(port))
    except ServerMissing as missing:
        missed(missing)
    here = {
        r"^shop = .*$": f"{database} = host={host} port={port} dbname={database}",
        r"^listen_addr = .*$": "listen_addr = 127.0.0.1",
        r"^listen_port = .*$": f"listen_port = {pgbouncer.port}\nunix_socket_dir =",
        r"^auth_type = .*$": "auth_type = trust",
        r"^auth_file = .*$": "auth_file = users.txt",
    }
    for line, other in here.items():
        assert re.search(line, said, re.MULTILINE), line
        said = re.sub(line, other, said, flags=re.MULTILINE)
    (pgbouncer._data / "pgbouncer.ini").write_text(said, encoding="utf-8")
    with pgbouncer:
        yield pgbouncer.url(postgres_url)


async def test_ticks_run_through_the_pooler_that_the_page_configures(
    pooled: str, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = run(f"oncron migrate --store {pooled}", tmp_path)
    assert done.stdout == f"{pooled} has the schema of this release.\n"
    app = Oncron(pooled, listen_url=postgres_url, auto_migrate=False)
    ticked = asyncio.Event()

    @app.schedule(every(seconds=0.5))
    async def beat() -> None:
        ticked.set()

    async with app:
        await asyncio.wait_for(ticked.wait(), 15)
    assert "hints.off" not in caplog.text
    app._life.at_exit()


def test_a_session_lock_is_refused_there_and_taken_by_a_direct_way(pooled: str, postgres_url: str) -> None:
    with pytest.raises(StoreUnsafe, match="pooler in transaction mode"):
        locked_run(pooled, "reindex", lambda: None)
    assert locked_run(postgres_url, "reindex", lambda: None) is True
