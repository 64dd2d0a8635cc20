"""Which functions another process can find, and what is said of those that it cannot."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oncron import Oncron
from oncron._importable import load, refuse_unfound, target_of
from oncron.errors import InvalidTask


def at_the_top() -> str:
    return "found"


class Group:
    def method(self) -> None: ...

    @staticmethod
    def static() -> str:
        return "found in a class"


@pytest.fixture
def app() -> Oncron:
    return Oncron("memory://")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """`jobs.py`: to be written and imported."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "jobs.py"
    sys.modules.pop("jobs", None)


def imported(jobs: Path, text: str) -> Any:
    jobs.write_text(text)
    return __import__("jobs")


def nested() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (
            nested(),
            r"'nested.<locals>.inner' is defined inside of a function, where no import sees it; define it with def",
        ),
        (Group().method, r"'Group.method' is a method of an object that only this process has; write a function"),
        (functools.partial(at_the_top), r"has no name in a module; define it with def"),
    ],
)
def test_a_function_that_no_import_can_find_is_refused_with_the_mend(app: Oncron, fn: Any, told: str) -> None:
    with pytest.raises(InvalidTask, match=rf"task 'job': executor=\"process\" finds the function .*{told}"):
        app.task(fn, name="job", executor="process")
    assert app._registry.tasks == {}
    app.task(fn, name="job")


def test_so_is_a_lambda() -> None:
    with pytest.raises(InvalidTask, match="a lambda has no name there"):
        target_of(lambda: None, "job")


def test_a_function_of_an_interactive_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ModuleType("__main__")
    exec("def job(): ...", session.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", session)
    with pytest.raises(InvalidTask, match="an interactive session or `python -c` cannot be imported; put it in a file"):
        target_of(session.job, "job")


@pytest.mark.parametrize(("fn", "found"), [(at_the_top, "found"), (Group.static, "found in a class")])
def test_a_function_at_the_top_or_in_a_class_is_found(fn: Any, found: str) -> None:
    assert load(target_of(fn, "job"))() == found


def test_the_task_made_of_a_function_is_found_in_its_place(jobs: Path) -> None:
    module = imported(
        jobs,
        "from oncron import Oncron, daily\n"
        "app = Oncron('memory://')\n"
        "@app.schedule(daily('03:00'), name='again')\n"
        "@app.task(executor='process')\n"
        "def job(): ...\n",
    )
    app: Oncron = module.app
    app._registry.refuse_unfound()
    assert load(target_of(module.job.fn, "job")) is module.job


@pytest.mark.parametrize(
    "hides",
    ["def job(): ...", "job = 3", "del job", "@app.task(name='second')\ndef job(): ..."],
)
async def test_a_name_that_leads_elsewhere_is_refused_at_the_start(jobs: Path, hides: str) -> None:
    app: Oncron = imported(
        jobs,
        "from oncron import Oncron\n"
        "app = Oncron('memory://')\n"
        "@app.task(executor='process')\n"
        "def job(): ...\n"
        f"{hides}\n",
    ).app
    with pytest.raises(InvalidTask, match=r"imports jobs.job in another process, and here that is .* name of its own"):
        await app.start()
    await app.start(worker=False)
    await app.stop()


def test_a_wrapper_that_bears_the_name_of_what_it_wraps_is_refused(app: Oncron) -> None:
    @functools.wraps(at_the_top)
    def wrapper() -> str:
        return at_the_top()

    with pytest.raises(InvalidTask, match="not the task's function"):
        refuse_unfound(wrapper, target_of(wrapper, "job"))
    refuse_unfound(at_the_top, target_of(at_the_top, "job"))


def test_a_function_that_the_other_process_does_not_have_is_an_error_with_the_mend(jobs: Path) -> None:
    target = target_of(imported(jobs, "def job(): ...").job, "job")
    sys.modules.pop("jobs")
    jobs.write_text("")
    with pytest.raises(InvalidTask, match="module 'jobs' has no 'job' in the worker process; define the task when"):
        load(target)
