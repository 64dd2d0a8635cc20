"""oncron in a Flask app: its config, its context, its commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncron import errors, every

flask = pytest.importorskip("flask", reason="the extension: pip install 'oncron[flask]'")

from oncron.contrib.flask import Oncron  # noqa: E402


def web_app(folder: Path, **config: object) -> flask.Flask:
    web = flask.Flask("shop")
    web.config.from_mapping(ONCRON_STORE=f"sqlite:///{folder}/jobs.db", NAME="shop", **config)
    return web


def test_each_run_has_an_app_context_of_its_own(tmp_path: Path) -> None:
    jobs = Oncron()

    @jobs.task
    def in_thread() -> str:
        flask.g.seen = flask.g.get("seen", 0) + 1
        return f"{flask.current_app.name} {flask.g.seen}"

    @jobs.task
    async def on_loop() -> str:
        flask.g.seen = flask.g.get("seen", 0) + 1
        await asyncio.sleep(0)
        return f"{flask.current_app.name} {flask.g.seen}"

    jobs.init_app(web_app(tmp_path))
    with jobs:
        runs = [task.enqueue_sync() for task in (in_thread, on_loop, in_thread, on_loop)]
        assert [jobs.sync(run.wait(20)) for run in runs] == ["shop 1"] * 4
    assert not flask.has_app_context()


def test_settings_come_from_the_config_and_the_config_goes_first(tmp_path: Path) -> None:
    jobs = Oncron(concurrency=3, namespace="here", timezone="Europe/Berlin")
    jobs.queue("mail", max_running=2)
    jobs.init_app(web_app(tmp_path, ONCRON_CONCURRENCY=7, ONCRON_QUEUES={"mail": 2}))
    assert jobs._settings.concurrency == 7
    assert jobs._settings.queues == {"mail": 2}
    assert jobs._settings.queue_limits == {"mail": 2}
    assert jobs._open.url == f"sqlite:///{tmp_path}/jobs.db"
    jobs.add_schedule("nightly", every(hours=1), "task")
    assert jobs._registry.timezone == "Europe/Berlin"


def test_another_flask_app_is_another_store(tmp_path: Path) -> None:
    jobs = Oncron()

    @jobs.task
    def noted() -> str:
        return flask.current_app.config["NAME"]

    found: list[int] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs.init_app(web_app(tmp_path / name))
        noted.enqueue_sync()
        found.append(len(jobs.sync(jobs.runs())))
    assert found == [1, 1]
    jobs._life.at_exit()


def test_before_there_is_a_flask_app_there_is_no_store() -> None:
    jobs = Oncron()
    jobs.task(print_nothing)
    with pytest.raises(errors.InvalidOption, match=r"call jobs\.init_app\(app\) first"):
        jobs._registry.tasks["print_nothing"].enqueue_sync()


def print_nothing() -> None: ...


def test_a_running_app_keeps_its_store(tmp_path: Path) -> None:
    jobs = Oncron(web_app(tmp_path))
    with jobs, pytest.raises(errors.AlreadyRunning, match="stop it before init_app"):
        jobs.init_app(web_app(tmp_path))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("ONCRON_CONCURENCY", 3, "ONCRON_CONCURENCY, which oncron does not know; did you mean ONCRON_CONCURRENCY?"),
        ("ONCRON_TIMEZONE", "UTC", r"ONCRON_TIMEZONE comes too late: .*; write Oncron\(timezone=\.\.\.\)"),
        ("ONCRON_CONCURRENCY", 0, "concurrency=0: give a number from 1"),
        ("ONCRON_STORE", "shop.db", "is no URL"),
        ("ONCRON_STORE", "", "is empty"),
    ],
)
def test_a_wrong_key_or_value_of_the_config_says_what_to_write(
    tmp_path: Path, key: str, value: object, says: str
) -> None:
    web = web_app(tmp_path)
    web.config[key] = value
    with pytest.raises(errors.InvalidOption, match=says):
        Oncron().init_app(web)


def test_a_wrong_option_of_the_extension_says_what_to_write() -> None:
    with pytest.raises(errors.InvalidOption, match="did you mean namespace"):
        Oncron(namespaces="x")


def test_the_commands_of_oncron_are_commands_of_flask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCRON_STORE", raising=False)
    jobs = Oncron()
    jobs.task(print_nothing)
    web = web_app(tmp_path)
    jobs.init_app(web)
    runner = web.test_cli_runner()
    enqueued = runner.invoke(args=["oncron", "enqueue", "print_nothing"])
    assert enqueued.exit_code == 0, enqueued.output
    listed = runner.invoke(args=["oncron", "runs", "--json"])
    assert '"print_nothing"' in listed.output
    wrong = runner.invoke(args=["oncron", "fire", "nothing"])
    assert (wrong.exit_code, "no schedule 'nothing'" in wrong.output) == (2, True)
    queue = runner.invoke(args=["oncron", "queue", "pause", "default"])
    assert queue.exit_code == 0, queue.output
    elsewhere = runner.invoke(args=["oncron", "runs", "--store", f"sqlite:///{tmp_path}/none.db"])
    assert (elsewhere.exit_code, "there is no file" in elsewhere.output) == (2, True)
    jobs._life.at_exit()
