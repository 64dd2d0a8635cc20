"""The source keeps the rules of the house; and each rule is shown to catch what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import rules

LADDER = rules.Ladder.of_project()


def test_imports_go_down_the_ladder_and_rooms_of_one_floor_are_strangers() -> None:
    assert rules.climbs(rules.SOURCE, LADDER) == []


def test_only_the_app_and_the_opener_know_a_concrete_store() -> None:
    assert rules.store_leaks(rules.SOURCE) == []


def test_the_wall_clock_and_sleep_live_in_one_module() -> None:
    assert rules.clock_reads(rules.SOURCE) == []


def test_sql_lives_in_sql_files() -> None:
    assert rules.sql_in_python(rules.SOURCE) == []


def test_nothing_in_the_source_is_left_for_later() -> None:
    assert rules.unfinished(rules.SOURCE) == []


def test_tests_do_not_sleep() -> None:
    assert rules.sleeps_in_tests(rules.REPOSITORY / "tests") == []


def test_the_repository_stands_on_its_own() -> None:
    assert rules.foreign_paths(rules.REPOSITORY) == []


def test_the_ladder_puts_the_engine_beside_the_stores_and_both_below_the_app() -> None:
    assert LADDER.allows("_app", "_engine")
    assert LADDER.allows("_app", "stores")
    assert LADDER.allows("_engine", "_store")
    assert LADDER.allows("stores", "_store")
    assert LADDER.allows("cli", "oncron")
    assert LADDER.allows("oncron", "_app")
    assert not LADDER.allows("_engine", "stores")
    assert not LADDER.allows("stores", "_engine")
    assert not LADDER.allows("_store", "_engine")
    assert not LADDER.allows("_app", "oncron")
    assert not LADDER.allows("errors", "_clock")
    assert not LADDER.allows("oncron", "cli")


class House:
    """A made-up tree to break rules in."""

    def __init__(self, top: Path) -> None:
        self.top = top

    def write(self, path: str, text: str) -> None:
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def house(tmp_path: Path) -> House:
    made_up = House(tmp_path)
    for room in ("errors", "_clock", "_model", "_store", "_app", "_task", "_run", "web", "_engine/scheduler"):
        made_up.write(f"oncron/{room}.py", "")
    for package in ("", "_engine/", "stores/", "stores/sqlite/", "cli/"):
        made_up.write(f"oncron/{package}__init__.py", "")
    for store in ("open", "memory", "sqlite/store", "_sql"):
        made_up.write(f"oncron/stores/{store}.py", "")
    return made_up


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("_model.py", "from oncron._store import Store"),
        ("_model.py", "from oncron import _store"),
        ("_model.py", "import oncron._store as s"),
        ("_model.py", "from . import _store"),
        ("_model.py", "from ._store import Store"),
        ("_model.py", "def f():\n    import oncron._app"),
        ("_model.py", "if TYPE_CHECKING:\n    from oncron._app import Oncron"),
        ("_app.py", "from oncron import Oncron"),
        ("_engine/scheduler.py", "from oncron.stores import open"),
        ("_engine/scheduler.py", "from ..stores.memory import MemoryStore"),
        ("_engine/__init__.py", "from ..stores import memory"),
        ("stores/memory.py", "from oncron._engine.scheduler import Scheduler"),
        ("errors.py", "from oncron._clock import wall_us"),
        ("web.py", "import oncron.cli"),
        ("__init__.py", "from oncron.cli import main"),
    ],
)
def test_an_import_that_climbs_or_meets_a_stranger_is_caught(house: House, file: str, statement: str) -> None:
    assert rules.climbs(house.top, LADDER) == []
    house.write(f"oncron/{file}", statement)
    assert len(rules.climbs(house.top, LADDER)) == 1


def test_imports_down_and_between_rooms_that_may_meet_are_free(house: House) -> None:
    house.write("oncron/_app.py", "from oncron import _task, errors\nfrom oncron._engine.scheduler import Scheduler")
    house.write("oncron/_task.py", "from oncron._run import Run\nimport asyncio, oncron.errors")
    house.write("oncron/_run.py", "from oncron._task import Task")
    house.write("oncron/__init__.py", "from oncron._app import Oncron")
    house.write("oncron/cli/__init__.py", "from oncron import Oncron\nfrom .render import table")
    house.write("oncron/cli/render.py", "")
    assert rules.climbs(house.top, LADDER) == []


def test_a_room_without_a_floor_is_caught(house: House) -> None:
    house.write("oncron/utils.py", "")
    assert rules.climbs(house.top, LADDER) == [
        "utils: has no floor; give it one in pyproject.toml, [tool.importlinter]"
    ]


@pytest.mark.parametrize(
    "file", ["testing.py", "cli/render.py", "_task.py", "stores/sqlite/store.py", "stores/_sql.py"]
)
def test_a_concrete_store_named_elsewhere_is_caught(house: House, file: str) -> None:
    house.write("oncron/_app.py", "from oncron.stores.memory import MemoryStore")
    house.write("oncron/stores/open.py", "from oncron.stores.sqlite.store import SQLiteStore")
    house.write("oncron/stores/sqlite/__init__.py", "from oncron.stores.sqlite.store import SQLiteStore")
    house.write("oncron/stores/memory.py", "from oncron.stores import _sql")
    assert rules.store_leaks(house.top) == []
    house.write(f"oncron/{file}", "from oncron.stores.memory import MemoryStore")
    assert len(rules.store_leaks(house.top)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time as t\nt.sleep(1)",
        "from time import sleep as rest\nrest(1)",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.now(UTC)",
        "from datetime import datetime as dt\nclock = dt.utcnow",
        "from datetime import date\ndate.today()",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
    ],
)
def test_a_clock_read_elsewhere_is_caught(house: House, text: str) -> None:
    house.write("oncron/_clock.py", text)
    house.write("oncron/_plan.py", "import time, asyncio\ntime.monotonic()\nasyncio.get_running_loop().time()")
    assert rules.clock_reads(house.top) == []
    house.write("oncron/_plan.py", text)
    assert len(rules.clock_reads(house.top)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "insert into runs values (1)",
        "DELETE FROM runs",
        "update runs set state = 1",
        "create table runs ()",
    ],
)
def test_sql_in_python_is_caught(house: House, statement: str) -> None:
    house.write(
        "oncron/stores/memory.py", f'"""It may say {statement!r}."""\nraise ValueError(f"{{x}}: drop table runs")'
    )
    assert rules.sql_in_python(house.top) == []
    house.write("oncron/stores/memory.py", f'"""Prose."""\nSTATEMENT = f"""{statement} {{x}}"""')
    assert len(rules.sql_in_python(house.top)) == 1


def test_work_left_for_later_is_caught(house: House) -> None:
    house.write("oncron/_task.py", "try:\n    f()\nexcept NotImplementedError:\n    pass  # somebody else's")
    assert rules.unfinished(house.top) == []
    house.write("oncron/_app.py", "raise " + "NotImplemented" + "Error")
    house.write("oncron/stores/sqlite/queries.sql", "-- TO" + "DO: an index")
    assert len(rules.unfinished(house.top)) == 2


def test_a_sleeping_test_is_caught(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.write("fault/test_kill.py", "import time\ntime.sleep(1)")
    house.write("unit/test_turn.py", "import asyncio\nasync def test():\n    await asyncio.sleep(0)")
    assert rules.sleeps_in_tests(tmp_path) == []
    house.write("unit/test_lazy.py", "import asyncio\nasync def test():\n    await asyncio.sleep(0.01)")
    assert rules.sleeps_in_tests(tmp_path) == ["unit/test_lazy.py:3: asyncio.sleep; await the event, or move the clock"]


@pytest.mark.parametrize(
    "mention", ["../" + "shared/DESIGN.md", "see /wo" + "rk/main", "cd /ro" + "ot/x", "/ho" + "me/me"]
)
def test_a_mention_of_some_other_place_is_caught(tmp_path: Path, mention: str) -> None:
    house = House(tmp_path)
    house.write("README.md", "https://example.org/work/ and ./root/ are no paths of a machine")
    house.write(".venv/pyvenv.cfg", mention)
    assert rules.foreign_paths(tmp_path) == []
    house.write("docs/how.md", mention)
    assert len(rules.foreign_paths(tmp_path)) == 1
