"""Any text that Python can hold comes back, or is mended: it never breaks a batch, and is never SQL."""

from __future__ import annotations

import json

import pytest

from oncron._model import Outcome, OutcomeKind, RunFilter
from oncron.stores.postgres import _wire
from tests.unit.stores.postgres_kit import asked, declared, new, opened, outcomes, plan, spec

NASTY = [
    "plain",
    "it's; drop schema oncron cascade; --",
    'double "quotes" and \\ backslashes \\\\',
    "\\'; select 1 --",
    "%s %(x)s {schema} $1 $$",
    "Zürich 東京 🕐 \u200d",
    "tab\tnewline\nreturn\r",
    "\\u0000 spelled out",
]


@pytest.mark.parametrize("text", NASTY)
async def test_a_text_comes_back_as_it_went_in(postgres_url: str, text: str) -> None:
    async with opened(postgres_url) as store:
        args = json.dumps({text: [text, {"deep": text}]}, ensure_ascii=False)
        await store.enqueue([new(args=args, queue=text, unique=text, task=text)])
        [run] = (await store.claim(spec(tasks=(text,), queues=(text,), worker=text))).runs
        assert (run.args, run.queue, run.unique, run.task, run.worker) == (args, text, text, text, text)
        await store.finish([Outcome(run_id=run.id, token=run.token, kind=OutcomeKind.FAILED, error=text, reason=text)])
        [run] = await store.runs(RunFilter(task=text))
        assert (run.error, run.reason) == (text, text)


async def test_arguments_with_an_escaped_nul_survive(postgres_url: str) -> None:
    args = json.dumps({"raw": "a\0b", "name\0": 1})
    async with opened(postgres_url) as store:
        await store.enqueue([new(args=args), new()])
        cursor = await declared(store, "a", args=args)
        await store.fire([plan("a", cursor)], fire_id="f")

        runs = (await store.claim(spec())).runs

        assert sorted(run.args for run in runs) == sorted([args, args, "{}"])
        [row] = await store.schedules()
        assert row.definition.args == args


async def test_a_nul_in_an_error_is_mended_and_the_batch_is_recorded(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.enqueue([new() for _ in range(3)])
        runs = (await store.claim(spec())).runs
        bad = Outcome(run_id=runs[0].id, token=runs[0].token, kind=OutcomeKind.FAILED, error="a\0b \\\0 \udcff")

        results = await store.finish([bad, *outcomes(runs[1:])])

        assert {result.status for result in results} == {"recorded"}
        [failed] = await store.get_runs([runs[0].id])
        assert failed.error == "a\ufffdb \\\ufffd \ufffd"


async def test_large_arguments_in_a_large_batch_come_back(postgres_url: str) -> None:
    args = json.dumps({"blob": "x" * (256 * 1024 - 20)})
    async with opened(postgres_url) as store:
        answers = await store.enqueue([new(args=args) for _ in range(60)])
        assert all(answer.is_new for answer in answers)

        runs = (await store.claim(spec(60))).runs

        assert [len(run.args) for run in runs] == [len(args)] * 60


async def test_strings_that_do_not_conform_to_the_standard_are_quoted_too(postgres_url: str) -> None:
    database = postgres_url.rsplit("/", 1)[1]
    await asked(postgres_url, f'alter database "{database}" set standard_conforming_strings = off')
    args = json.dumps({"path": "C:\\new\\table", "quote": "it's"})
    async with opened(postgres_url) as store:
        await store.enqueue([new(args=args)])

        assert (await store.claim(spec())).runs[0].args == args


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("a\0", "a\ufffd"),
        ("\\u0000", "\\u0000"),
        ("\\\0", "\\\ufffd"),
        ("\\\\\0\0", "\\\\\ufffd\ufffd"),
        ("\ud800", "\ufffd"),
    ],
)
def test_only_what_postgresql_cannot_hold_is_replaced(text: str, stored: str) -> None:
    assert json.loads(_wire.encode([{"key": (text,)}])) == [{"key": [stored]}]
