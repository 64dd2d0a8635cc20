"""The records that replicas exchange: ids, order, digests, names, and what a run says of itself."""

from __future__ import annotations

import unicodedata
import uuid

import msgspec
import pytest
from hypothesis import given, strategies as st

from oncron import _model
from oncron._clock import SECOND
from oncron._defaults import NAME_CHARS
from oncron._model import (
    Definition,
    Missed,
    NewRun,
    Overlap,
    Record,
    RunRecord,
    RunState,
    checked_name,
    new_id,
    new_run_id,
    order_key,
    tick_run_id,
)
from oncron.errors import DefinitionError, InvalidOption

RECORDS = [kind for kind in vars(_model).values() if isinstance(kind, type) and issubclass(kind, Record)]
instants = st.integers(-(10**15), 253_402_300_799 * SECOND)


def a_run(**fields: object) -> RunRecord:
    return RunRecord(**({"id": new_run_id(), "task": "send"} | fields))


# --- ids ------------------------------------------------------------------------------------


def test_the_id_of_a_ticks_run_is_frozen() -> None:
    """Replicas of every release must give the same id to the same tick, for ever."""
    assert tick_run_id("report", 1_750_000_000_000_000) == "01977420-dc00-8d66-93db-5138eb33cd84"
    assert tick_run_id("日報", 0) == "00000000-0000-8987-b600-4f31f3a8b2a3"


def test_the_id_of_a_ticks_run_is_a_uuid_of_version_8_that_begins_with_its_milliseconds() -> None:
    value = uuid.UUID(tick_run_id("report", 1_750_000_000_123_456))

    assert (value.version, value.variant) == (8, uuid.RFC_4122)
    assert value.int >> 80 == 1_750_000_000_123


@given(st.text(min_size=1), st.text(min_size=1), instants, instants)
def test_two_ticks_have_one_id_only_if_schedule_and_instant_are_the_same(a: str, b: str, s: int, t: int) -> None:
    same = (a, s) == (b, t)
    try:
        assert (tick_run_id(a, s) == tick_run_id(b, t)) is same
    except UnicodeEncodeError:
        assert any(unicodedata.category(letter) == "Cs" for letter in a + b), "no valid name has those"


def test_a_name_that_looks_like_a_tick_and_a_name_is_told_apart() -> None:
    assert tick_run_id("1", 11) != tick_run_id("11", 1)


def test_instants_before_1970_and_in_9999_have_ids() -> None:
    assert uuid.UUID(tick_run_id("report", -1)).version == 8
    assert uuid.UUID(tick_run_id("report", 253_402_300_799 * SECOND)).version == 8


def test_ids_of_new_runs_are_version_7_unlike_and_in_the_order_in_which_they_are_made() -> None:
    ids = [new_run_id() for _ in range(10_000)]

    assert {(uuid.UUID(each).version, uuid.UUID(each).variant) for each in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 10_000
    assert ids == sorted(ids)
    assert uuid.UUID(new_id()).version == 4


# --- records --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_records_are_frozen_and_take_their_fields_by_keyword(kind: type[Record]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__doc__ or kind.__annotations__
    if kind.__struct_fields__:
        with pytest.raises(TypeError, match="positional"):
            kind("by position")


def test_a_record_travels_as_json_and_comes_back_equal() -> None:
    definition = Definition(name="ß", trigger="every 1s", task="send", overlap=Overlap.WAIT, tags=("a", "b"))
    run = a_run(state=RunState.RUNNING, tick=9, due_at=253_402_300_799 * SECOND, error="\0 é")

    assert msgspec.json.decode(msgspec.json.encode(definition), type=Definition) == definition
    assert msgspec.json.decode(msgspec.json.encode(run), type=RunRecord) == run


# --- definitions ----------------------------------------------------------------------------


def test_equal_definitions_have_equal_digests_and_a_change_of_any_policy_has_another() -> None:
    base = Definition(name="report", trigger="every 1s", task="send")
    others = [
        {"name": "other"},
        {"trigger": "every 2s"},
        {"task": "other"},
        {"args": "[]"},
        {"missed": Missed.ALL},
        {"missed_within": 1},
        {"missed_limit": 1},
        {"overlap": Overlap.ALLOW},
        {"jitter": 1},
        {"start_at": 1},
        {"end_at": 1},
        {"limit": 1},
        {"tags": ("a",)},
        {"queue": "other"},
        {"priority": 1},
        {"retries": 1},
        {"retry_delay": 1},
        {"timeout": 1},
        {"unique": "k"},
        {"origin": "api"},
    ]

    digests = {msgspec.structs.replace(base, **changed).digest() for changed in others}

    assert base.digest() == Definition(name="report", trigger="every 1s", task="send").digest()
    assert len(digests | {base.digest()}) == len(others) + 1


def test_who_declares_a_schedule_is_no_part_of_its_digest() -> None:
    """Else replicas of two releases would overwrite each other's equal declarations in turn."""
    base = Definition(name="report", trigger="every 1s", task="send")

    assert msgspec.structs.replace(base, release=2, tzdata="2025b", paused=True).digest() == base.digest()


def test_only_trigger_and_window_decide_the_instants() -> None:
    base = Definition(name="report", trigger="every 1s", task="send")

    assert base.same_instants(msgspec.structs.replace(base, retries=9, overlap=Overlap.ALLOW, args="[]", jitter=5))
    for changed in ({"trigger": "every 2s"}, {"start_at": 1}, {"end_at": 1}):
        assert not base.same_instants(msgspec.structs.replace(base, **changed))


# --- runs -----------------------------------------------------------------------------------


def test_a_run_is_open_until_it_has_ended() -> None:
    assert {state for state in RunState if state.is_open} == {RunState.PENDING, RunState.RUNNING}


@pytest.mark.parametrize(
    ("attempt", "given_back", "retries", "spent", "is_last"),
    [(1, 0, 0, 1, True), (1, 0, 3, 1, False), (4, 0, 3, 4, True), (7, 3, 3, 4, True), (7, 4, 3, 3, False)],
)
def test_attempts_spent_are_claims_less_what_was_given_back(
    attempt: int, given_back: int, retries: int, spent: int, is_last: bool
) -> None:
    run = a_run(attempt=attempt, given_back=given_back, retries=retries)

    assert (run.attempts_spent, run.is_last_attempt) == (spent, is_last)


def test_a_minute_of_waiting_outweighs_a_step_of_priority() -> None:
    assert order_key(100 * SECOND, 0) == order_key(160 * SECOND, 1)
    assert a_run(due_at=100 * SECOND).order_key < a_run(due_at=161 * SECOND, priority=1).order_key
    assert a_run(due_at=100 * SECOND).order_key > a_run(due_at=159 * SECOND, priority=1).order_key


def test_a_run_waits_for_its_place_by_its_tick_or_else_by_its_creation() -> None:
    assert a_run(tick=5, created_at=9).position == 5
    assert a_run(tick=0, created_at=9).position == 0
    assert a_run(created_at=9).position == 9


def test_a_new_run_needs_an_id_and_a_task() -> None:
    with pytest.raises(TypeError, match="id"):
        NewRun(task="send")  # pyright: ignore[reportCallIssue]


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["naïve-café", "日報", "🦉", "a.b", "a:b", "a/b", "a b", "O'Brien; --", "x", "x" * NAME_CHARS, " a "]
)
def test_names_of_any_language_and_punctuation_are_kept_as_they_are(name: str) -> None:
    assert checked_name(name, "schedule") == name


def test_two_spellings_of_one_name_become_the_same() -> None:
    assert checked_name("cafe\u0301", "task") == checked_name("café", "task") == "café"


@pytest.mark.parametrize("name", ["", "x" * (NAME_CHARS + 1), "x" * 300])
def test_a_name_of_the_wrong_length_is_refused_with_its_length(name: str) -> None:
    with pytest.raises(InvalidOption, match=rf"task name .* has {len(name)} characters.*1 to {NAME_CHARS}"):
        checked_name(name, "task")


@pytest.mark.parametrize("name", [" ", "   ", "\u3000", "\xa0 "])
def test_a_blank_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"queue name .* is blank"):
        checked_name(name, "queue")


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x7f", "\x1b[31m", "a\ud800b"])
def test_a_name_with_a_control_character_or_half_a_letter_is_refused_and_shown_safely(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"U\+[0-9A-F]{4}; leave it out") as refused:
        checked_name(name, "schedule")

    str(refused.value).encode()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [None, 5, b"report", ["report"]])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError, match="is not text"):
        checked_name(name, "queue")


@given(st.text(max_size=300))
def test_a_name_that_was_accepted_is_accepted_again_unchanged(name: str) -> None:
    try:
        accepted = checked_name(name, "schedule")
    except InvalidOption:
        return
    assert checked_name(accepted, "schedule") == accepted
    assert 1 <= len(accepted) <= NAME_CHARS
