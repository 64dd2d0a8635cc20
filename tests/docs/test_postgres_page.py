"""The page on PostgreSQL, followed on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from oncron import Oncron, every
from oncron.errors import SchemaOutdated
from tests.docs.snippets import REPOSITORY, run, write_files

psycopg = pytest.importorskip("psycopg", reason="the PostgreSQL driver is an extra: pip install '.[postgres]'")

PAGE = REPOSITORY / "docs" / "how-to" / "postgres.md"
IN_PAGE = "postgresql://shop_migrator@db.example.org/shop"


@pytest.fixture
def administrator(postgres_url: str, tmp_path: Path) -> Callable[[str], None]:
    """Runs one of the page's SQL files, in a database that has another name than the page's."""
    write_files(PAGE, tmp_path)

    def call(file: str) -> None:
        sql = (tmp_path / file).read_text(encoding="utf-8")
        database = postgres_url.rpartition("/")[2]
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.replace("on database shop ", f"on database {database} "))

    return call


async def test_two_roles_as_the_page_says(
    administrator: Callable[[str], None], postgres_url: str, tmp_path: Path
) -> None:
    def url(role: str) -> str:
        return f"postgresql://{role}@{postgres_url.rpartition('@')[2]}"

    administrator("roles.sql")
    app = Oncron(url("shop"), auto_migrate=False)
    with pytest.raises(SchemaOutdated):
        await app.stats()

    done = run(f"oncron migrate --store {url('shop_migrator')}", tmp_path)
    assert done.stdout == f"{url('shop_migrator')} has the schema of this release.\n"
    administrator("grants.sql")

    ticked = asyncio.Event()

    @app.schedule(every(seconds=0.5))
    async def beat() -> None:
        ticked.set()

    async with app:
        await asyncio.wait_for(ticked.wait(), 15)
    assert [run.task for run in await app.runs(limit=1)] == ["beat"]
    app._life.at_exit()
