"""The Lua beside the store: headed, complete, alike with what Python says, and at home in one hash slot."""

from __future__ import annotations

import ast
import re
from importlib.resources import files

import pytest

from oncron import _defaults as limits
from oncron._model import NewRun, OutcomeKind, Overlap, RunRecord, new_id
from oncron._store import ReadableStore
from oncron.errors import NotFound
from oncron.stores.redis import RedisStore, _scripts
from tests.contract.given import (
    FAR_AHEAD,
    at,
    beat,
    claim,
    claimed,
    declared,
    enqueued,
    finish,
    fired,
    new_run,
    picture,
)
from tests.redis_server import RedisServer

FOLDER = files("oncron.stores.redis").joinpath("lua")
TEXTS = {
    place + entry.name: entry.read_text(encoding="utf-8")
    for place in ("", "shared/")
    for entry in FOLDER.joinpath(place).iterdir()
    if entry.name.endswith(".lua")
}


@pytest.mark.parametrize("name", _scripts.names())
def test_each_script_says_what_it_does_takes_and_returns(name: str) -> None:
    header = TEXTS[f"{name}.lua"].split("\n\n", 1)[0]

    assert re.search(rf"^-- {name}: \w", header, re.MULTILINE)
    assert re.search(r"^-- returns  \w|^-- returns  [\[{]|as text\.", header, re.MULTILINE)
    uses_arguments = re.search(r"\bargs\b", TEXTS[f"{name}.lua"].replace(header, ""))
    assert bool(uses_arguments) is bool(re.search(r"^-- args     \w", header, re.MULTILINE))


def test_every_script_belongs_to_a_step() -> None:
    python = "".join(
        entry.read_text(encoding="utf-8")
        for entry in files("oncron.stores.redis").iterdir()
        if entry.name.endswith(".py")
    )
    asked = set(re.findall(r'(?:_read|_write|_write_raw|run)\(\s*"(\w+)"', python))
    assert asked == set(_scripts.names())


@pytest.mark.parametrize(
    ("script", "name", "value"),
    [
        ("poll.lua", "GRACE", limits.IDLE_HEARTBEAT),
        ("poll.lua", "DROPPED_AFTER", limits.DROPPED_AFTER),
        ("reap.lua", "DROPPED_AFTER", limits.DROPPED_AFTER),
        ("reap.lua", "LONGEST_DELAY", limits.RETRY_DELAY_CAP),
        ("finish.lua", "MOST_RELEASES", limits.RELEASES_IN_A_ROW),
        ("stats.lua", "OVERDUE_AFTER", limits.OVERDUE_AFTER),
        ("take.lua", "LONGER", limits.STALE_WALL),
        ("shared/locks.lua", "DAY", limits.DAY),
    ],
)
def test_what_lua_counts_on_is_what_python_says(script: str, name: str, value: int) -> None:
    found = re.search(r"^local (?P<names>[A-Z_, ]+) = (?P<values>[\d, ]+)$", TEXTS[script], re.MULTILINE)
    assert found is not None
    pairs = zip(found["names"].split(", "), found["values"].split(", "), strict=True)
    assert int(dict(pairs)[name]) == value


def test_what_a_record_leaves_out_is_what_the_model_says() -> None:
    """A record that leaves a field out means this value for ever: defaults that may change are not among them."""
    [table] = re.findall(r"^local DEFAULTS = \{(.*?)^\}", TEXTS["shared/runs.lua"], re.MULTILINE | re.DOTALL)
    pairs = dict(re.findall(r"(\w+) = ('[^']*'|\w+)", table))
    words = {"true": True, "false": False}
    values = {name: words[text] if text in words else ast.literal_eval(text) for name, text in pairs.items()}
    plain = RunRecord(id="", task="")

    assert values == {name: getattr(plain, name) for name in values}
    assert not {"retries", "retry_delay", "timeout"} & set(values)


async def a_life(store: ReadableStore) -> None:
    """A little of everything."""
    await declared(store, "serial", overlap=Overlap.QUEUE, unique=None)
    await declared(store, "free", overlap=Overlap.ALLOW, now=at(0))
    for second in (1, 2, 3):
        await fired(store, at(second), name="serial")
        await fired(store, at(second), name="free")
    await enqueued(store, now=at(3), unique="k", queue="other", priority=2)
    for second in range(4, 12):
        for run in (await claim(store, now=at(second), max_running=(("send", 3),))).runs:
            kind = OutcomeKind.SUCCEEDED if second % 2 else OutcomeKind.FAILED
            await finish(store, run, kind, now=at(second))
    await store.acquire("lock", owner="me", lease_for=1, now=at(4))
    await beat(store, "w2", now=at(4))


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> RedisServer:
    return request.getfixturevalue(f"{request.param}_server")


def keys_of(server: RedisServer, namespace: str) -> set[str]:
    return set(server.command("KEYS", f"*{namespace}*"))


async def test_all_keys_carry_the_tag_of_their_namespace(server: RedisServer) -> None:
    namespace = "tag" + new_id()[:8]
    store = RedisStore(server.url(), namespace=namespace)
    before = set(server.command("KEYS", "*"))
    await store.migrate()
    await a_life(store)

    made = set(server.command("KEYS", "*")) - before
    assert len(made) > 10
    assert all(key.startswith(f"{{{namespace}}}:") for key in made), made
    await store.drop()
    assert set(server.command("KEYS", "*")) == before
    await store.close()


async def test_of_runs_that_ended_and_were_pruned_nothing_is_left(server: RedisServer) -> None:
    namespace = "left" + new_id()[:8]
    store = RedisStore(server.url(), namespace=namespace)
    await store.migrate()
    await a_life(store)
    await store.leave("w1")
    await store.reap(now=at(100))
    await store.prune(ended_before=FAR_AHEAD, failed_before=FAR_AHEAD, now=at(100 * 86_400))

    left = {key.split(":", 1)[1] for key in keys_of(server, namespace)}
    assert left == {
        "meta",
        "schedules",
        "definitions",
        "templates",
        "statuses",
        "due",
        "schedule:serial",
        "schedule:free",
    }
    await store.drop()
    await store.close()


async def test_scripts_that_the_server_forgot_are_sent_again(server: RedisServer) -> None:
    store = RedisStore(server.url(), namespace=server.namespace())
    await store.migrate()
    run = await enqueued(store, now=at(0))

    for step in range(3):
        server.command("SCRIPT", "FLUSH")
        held = await claimed(store, now=at(step * 10))
        server.command("SCRIPT", "FLUSH")
        await finish(store, held, OutcomeKind.RETRY, now=at(step * 10), spend_attempt=False)

    assert [each.id for each in (await claim(store, now=at(40))).runs] == [run.id]
    await store.drop()
    await store.close()


async def test_a_large_batch_of_which_one_names_nothing_writes_nothing(server: RedisServer) -> None:
    store = RedisStore(server.url(), namespace=server.namespace())
    await store.migrate()
    runs: list[NewRun] = [new_run() for _ in range(600)]

    for wrong in (new_run(schedule="nobody"), new_run(batch="none")):
        with pytest.raises(NotFound):
            await store.enqueue([*runs, wrong], now=at(0))
    assert (await picture(store))["runs"] == []
    assert len(await store.enqueue(runs, now=at(0))) == 600
    await store.drop()
    await store.close()


async def test_a_namespace_sees_nothing_of_another_that_begins_alike(server: RedisServer) -> None:
    namespace = server.namespace()
    mine, theirs = (RedisStore(server.url(), namespace=name) for name in (namespace, namespace + "x"))
    for store in (mine, theirs):
        await store.migrate()
    await enqueued(theirs, now=at(0))

    assert (await claim(mine, now=at(1))).runs == ()
    await mine.drop()
    assert len((await claim(theirs, now=at(1))).runs) == 1
    await theirs.drop()
    for store in (mine, theirs):
        await store.close()
