"""Names and ids that callers look for: what cannot be one is refused in one sentence, whatever the store."""

from __future__ import annotations

import asyncio
import unicodedata
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from oncron import Oncron, every
from oncron.errors import InvalidOption

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)

LOOKS: dict[str, Callable[[Oncron, Any], Any]] = {
    "get_run": lambda app, sought: app.get_run(sought),
    "cancel": lambda app, sought: app.cancel(sought),
    "retry": lambda app, sought: app.retry(sought),
    "runs of a schedule": lambda app, sought: app.runs(schedule=sought),
    "runs of a task": lambda app, sought: app.runs(task=sought),
    "runs of a queue": lambda app, sought: app.runs(queue=sought),
    "runs of a batch": lambda app, sought: app.runs(batch=sought),
    "runs before one": lambda app, sought: app.runs(before=sought),
    "get_batch": lambda app, sought: app.get_batch(sought),
    "batches before one": lambda app, sought: app.batches(before=sought),
    "batch in another": lambda app, sought: app.batch(parent=sought).flush(),
    "get_schedule": lambda app, sought: app.get_schedule(sought),
    "schedules of a tag": lambda app, sought: app.schedules(tag=sought),
    "pause": lambda app, sought: app.pause(sought),
    "resume": lambda app, sought: app.resume(sought),
    "remove_schedule": lambda app, sought: app.remove_schedule(sought),
    "fire": lambda app, sought: app.fire(sought),
    "why": lambda app, sought: app.why(sought, JANUARY),
    "backfill": lambda app, sought: app.backfill(sought, JANUARY, JANUARY),
}


@pytest.mark.parametrize(
    "sought",
    [uuid.UUID(int=7), b"nightly", True, 7, ["nightly"], "lone \ud800", "nul \0", "x" * 100_000],
    ids=["uuid", "bytes", "bool", "int", "list", "surrogate", "nul", "long"],
)
async def test_what_is_no_name_and_no_id_is_refused_and_no_store_is_taken_for_lost(app: Oncron, sought: object) -> None:
    heard: list[str] = []
    app.on("store.*")(lambda event: heard.append(event.name))
    await app.stats()
    for what, look in LOOKS.items():
        with pytest.raises(InvalidOption) as refused:
            await asyncio.wait_for(look(app, sought), 5)
        assert len(str(refused.value)) < 200, what
    assert heard == []


async def test_a_name_is_found_however_its_letters_are_composed(app: Oncron) -> None:
    name = "caf\u00e9"
    await app.put_schedule(name, every(hours=1), "serve")
    await app.pause(unicodedata.normalize("NFD", name))
    assert (await app.get_schedule(unicodedata.normalize("NFD", name))).name == name
