"""From a URL to a store: known schemes, and what is said about others."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncron import Oncron
from oncron.errors import InvalidOption, SchemaOutdated
from oncron.stores.open import opener, without_password


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://host/db", "unknown scheme 'mysql'; write sqlite:///relative.db"),
        ("postgrsql://host/db", r"did you mean postgresql://\?"),
        ("oncron.db", "is no URL; write sqlite:///relative.db"),
        ("", "is no URL"),
        (5, "is no URL"),
        ("sqlite://relative.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory:// for a store that is gone"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_the_known_forms(url: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        opener(url)


def test_a_listening_url_without_postgresql_is_refused() -> None:
    with pytest.raises(InvalidOption, match="listen_url= is for PostgreSQL"):
        opener("memory://", listen_url="postgresql://host/db")


def test_a_missing_driver_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "psycopg" else found(name))
    with pytest.raises(InvalidOption, match=r"pip install 'oncron\[postgres\]'"):
        opener("postgresql://host/db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://host/db?password=secret&x=1", "postgresql://host/db?password=***&x=1"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert opener(url).url == shown


def test_an_unknown_scheme_does_not_show_the_password_either() -> None:
    with pytest.raises(InvalidOption) as raised:
        opener("mysql://me:secret@host/db")
    assert "secret" not in str(raised.value)


async def test_a_relative_path_is_taken_from_where_the_app_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make = opener("sqlite:///jobs.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store = make()
    await store.open()
    await store.migrate()
    await store.close()
    assert (tmp_path / "jobs.db").exists()


def test_the_environment_names_the_store_where_the_code_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCRON_STORE", "memory://shared")
    assert Oncron()._open.url == "memory://shared"
    assert Oncron("memory://own")._open.url == "memory://own"


def test_the_default_store_is_a_file_with_one_warning_at_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCRON_STORE", raising=False)
    app = Oncron()
    assert caplog.records == []
    with app:
        pass
    with app:
        app.sync(app.schedules())
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "sqlite:///oncron.db" in warnings[0]
    assert "Replicas on other hosts do not see this file" in warnings[0]
    assert (tmp_path / "oncron.db").exists()


async def test_without_auto_migrate_the_schema_is_checked_and_migrate_makes_it(tmp_path: Path) -> None:
    app = Oncron(f"sqlite:///{tmp_path}/jobs.db", auto_migrate=False)
    with pytest.raises(SchemaOutdated, match="oncron migrate"):
        await app.schedules()
    await app.migrate()
    await app.migrate()
    assert await app.schedules() == []
    app._life.at_exit()


def test_importing_oncron_imports_no_driver() -> None:
    drivers = "psycopg", "redis", "sqlite3", "rich"
    code = f"import sys, oncron; oncron.Oncron('memory://'); print([m for m in {drivers} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
