"""The JSON API: the records of `--json`, page by page, and a document that says so."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from oncron import Oncron
from oncron.cli import main
from oncron.web import asgi
from oncron.web._api import READS, WRITES
from oncron.web._openapi import document, operations
from tests.faces.web import client, filled, shop, text_of


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('web')}/shop.db"
    return url, asyncio.run(filled(shop(url)))


@pytest.fixture
async def app(life: tuple[str, dict[str, str]]) -> AsyncIterator[Oncron]:
    found = shop(life[0])
    yield found
    found._life.at_exit()


@pytest.fixture
async def web(app: Oncron) -> AsyncIterator[httpx.AsyncClient]:
    async with client(asgi(app)) as found:
        yield found


async def all_of(web: httpx.AsyncClient, address: str, cursor: str) -> list[dict[str, Any]]:
    """Every item, one a page."""
    items: list[dict[str, Any]] = []
    on: str | None = ""
    while on is not None:
        page = (await web.get(address, params={"limit": 1} | ({cursor: on} if on else {}))).json()
        assert len(page["items"]) <= 1
        items += page["items"]
        on = page[cursor]
    return items


async def test_lists_come_whole_in_pages_of_one(web):
    schedules, runs = await all_of(web, "/api/schedules", "after"), await all_of(web, "/api/runs", "before")
    assert [row["name"] for row in schedules] == sorted(row["name"] for row in schedules)
    assert {row["task"] for row in runs} == {"broken", "reindex", "mail"}
    assert runs == (await web.get("/api/runs")).json()["items"]


async def test_records_are_those_that_the_command_line_prints(web, app, life, capsys):

    def printed(*arguments: str) -> Any:
        with pytest.raises(SystemExit):
            main([*arguments, "--store", life[0], "--json"])
        return json.loads(capsys.readouterr().out)

    schedules, runs = await asyncio.to_thread(printed, "schedules"), await asyncio.to_thread(printed, "runs")
    of_api = (await web.get("/api/schedules")).json()["items"]
    assert [row.keys() for row in of_api] == [row.keys() for row in schedules]
    assert of_api == schedules
    assert (await web.get("/api/runs")).json()["items"] == runs
    run = (await web.get("/api/run", params={"id": life[1]["mail"]})).json()
    assert run == await asyncio.to_thread(printed, "show", life[1]["mail"])


async def test_one_schedule_comes_with_its_runs_and_gaps(web):
    found = (await web.get("/api/schedule", params={"name": "reindex"})).json()
    assert found["words"] == "every day at 02:30 (Europe/Berlin)"
    assert [run["task"] for run in found["runs"]] == ["reindex"]
    assert found["gaps"] == []


async def test_why_and_load_and_stats_are_told(web):
    told = (await web.get("/api/why", params={"schedule": "reindex", "instant": "2020-01-01T01:30:00Z"})).json()
    assert told["verdict"] == "before"
    load = (await web.get("/api/load")).json()
    assert len(load["ticks"]) == 1440
    assert load["schedules"] == 3
    assert (await web.get("/api/stats")).json()["runs"] == {"failed": 1, "succeeded": 2}


async def test_wishes_answer_the_record_as_it_is_then(web):
    paused = (await web.post("/api/schedule/pause", json={"name": "broken", "note": "n"})).json()
    assert (paused["status"], paused["note"], paused["next_at"]) == ("paused", "n", None)
    assert (await web.post("/api/schedule/resume", json={"name": "broken"})).json()["status"] == "active"
    run = (await web.post("/api/schedule/fire", json={"name": "broken", "reason": "to see"})).json()
    assert (run["state"], run["reason"]) == ("pending", "to see")
    again = await web.post("/api/schedule/fire", json={"name": "broken"})
    assert again.status_code == 409
    assert run["id"] in again.json()["error"]
    assert (await web.post("/api/run/cancel", json={"id": run["id"]})).json()["state"] == "cancelled"
    assert (await web.post("/api/queue/pause", json={"name": "mail"})).json()["paused"] is True
    assert (await web.post("/api/queue/resume", json={"name": "mail"})).json()["paused"] is False


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [
        ("api/run?id=nope", 404, "No run 'nope'"),
        ("api/schedules?limit=0", 400, "whole number from 1 to 1000"),
        ("api/schedules?limit=1001", 400, "whole number from 1 to 1000"),
        ("api/runs?limit=ten", 400, "whole number from 1 to 1000"),
        ("api/runs?limit=99999999999999999999", 400, "whole number from 1 to 1000"),
        ("api/runs?before=nope", 400, "is no run on record"),
        ("api/why?schedule=reindex", 400, "Instant is missing"),
        ("api/nope", 404, "There is no page"),
    ],
)
async def test_errors_are_a_sentence_in_json(web, page, status, said):
    answer = await web.get(f"/{page}")
    assert answer.status_code == answer.json()["status"] == status
    assert said in answer.json()["error"]


async def test_a_wish_for_what_is_not_there_is_not_found(web):
    for address, body in (
        ("schedule/pause", {"name": "nope"}),
        ("run/retry", {"id": "nope"}),
        ("queue/pause", {"name": "x"}),
    ):
        answer = await web.post(f"/api/{address}", json=body)
        assert answer.status_code == 404, address


# --- the document ---------------------------------------------------------------------------------


async def test_the_document_has_every_address_of_the_api(web):
    found = (await web.get("/api/openapi.json")).json()
    assert found["openapi"] == "3.1.0"
    told = {(path, method) for path, methods in found["paths"].items() for method in methods}
    there = {(path, "get") for path in READS if path != "/api/openapi.json"} | {(path, "post") for path in WRITES}
    assert told == there
    names = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set[str]()
        return own.union(*map(references, value.values()))
    return set[str]().union(*map(references, value)) if isinstance(value, list) else set()


def test_every_reference_of_the_document_leads_somewhere() -> None:
    found = document("oncron")
    assert references(found) == {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}


_KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def misfits(value: Any, schema: dict[str, Any], found: dict[str, Any], path: str = "$") -> list[str]:
    """Where a value is not what the schema says; of JSON Schema as much as the document uses."""
    if "$ref" in schema:
        schema = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "allOf" in schema:
        return [each for part in schema["allOf"] for each in misfits(value, part, found, path)]
    if "anyOf" in schema:
        return min((misfits(value, part, found, path) for part in schema["anyOf"]), key=len)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not (
        ("null" in kinds and value is None) or any(isinstance(value, _KINDS[k]) for k in kinds if k != "null")
    ):
        return [f"{path}: {value!r} is no {kinds}"]
    if value is not None and "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} is none of {schema['enum']}"]
    wrong: list[str] = []
    if isinstance(value, dict):
        wrong += [f"{path}.{name}: missing" for name in schema.get("required", []) if name not in value]
        for name, part in schema.get("properties", {}).items():
            wrong += misfits(value[name], part, found, f"{path}.{name}") if name in value else []
    for number, item in enumerate(value if isinstance(value, list) else []):
        wrong += misfits(item, schema.get("items", {}), found, f"{path}[{number}]")
    return wrong


async def test_answers_are_what_the_document_says(web, app, life):
    async with app.batch() as batch:
        batch.add(app._registry.tasks["mail"], to="x")
    found = document("oncron")
    asked = {
        "/api/schedule": {"name": "reindex"}, "/api/run": {"id": life[1]["mail"]}, "/api/batch": {"id": batch.id},
        "/api/why": {"schedule": "reindex", "instant": "2020-01-01T01:30:00Z"},
    }  # fmt: skip
    for path in READS:
        if path == "/api/openapi.json":
            continue
        answer = (await web.get(path, params=asked.get(path, {}))).json()
        told = found["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert misfits(answer, told, found) == [], path


async def test_the_page_of_the_api_lists_it_and_asks_nobody_else(web):
    page = await web.get("/api")
    for each in operations():
        assert f"<code>{each.path}</code>" in page.text
    assert "http" not in re.sub(r"http-equiv", "", page.text.partition("<main")[2])
    assert "OpenAPI 3.1" in text_of(page)
