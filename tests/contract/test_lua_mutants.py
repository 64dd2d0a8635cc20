"""The same for the Lua of the Redis store: one guard taken out of a script, and a test of the suite that sees it."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any, NamedTuple

import pytest

from oncron._model import OutcomeKind
from oncron.errors import StoreError
from oncron.stores.redis import RedisStore, _scripts
from oncron.stores.redis._link import Link
from oncron.stores.redis._scripts import Script
from tests.contract import (
    test_cancel_retry as cancel_retry,
    test_claim as claim,
    test_declare as declare,
    test_enqueue as enqueue,
    test_finish as finish,
    test_fire as fire,
    test_fire_runs as fire_runs,
    test_heartbeat as heartbeat,
    test_locks as locks,
    test_max_running as max_running,
    test_occupancy as occupancy,
    test_occupancy_changes as occupancy_changes,
    test_prune as prune,
    test_queues as queues,
    test_reap as reap,
    test_tokens as tokens,
)
from tests.contract.test_mutants import ContractTest
from tests.redis_server import RedisServer


class Mutant(NamedTuple):
    """In every script that holds it, `guard` is replaced by `by`."""

    guard: str
    by: str
    test: ContractTest
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.guard[:40]}-{self.test.__name__[5:60]}"


def seen_by(guard: str, by: str, test: ContractTest, **given: Any) -> Mutant:
    return Mutant(guard, by, test, given)


MUTANTS = [
    seen_by(
        "or row.cursor ~= plan.seen",
        "",
        fire.test_of_two_replicas_that_offer_the_same_tick_the_second_is_stale_and_writes_nothing,
    ),
    seen_by("or row.revision ~= plan.revision", "", fire.test_a_plan_made_from_an_older_definition_is_stale),
    seen_by("tonumber(plan.cursor) > now", "false", fire.test_a_tick_later_than_the_clock_of_the_store_is_refused),
    seen_by("not exists(tick.run_id)", "true", fire.test_a_tick_whose_run_is_on_record_makes_no_second_one),
    seen_by(
        "row.fire_id == args.fire_id",
        "false",
        fire.test_the_same_fire_id_answers_fired_again_with_its_leases_while_they_are_held,
    ),
    seen_by(
        "call('RPUSH', list, cmsgpack.pack(gap))",
        "",
        fire.test_ticks_that_are_passed_without_a_run_are_recorded_as_a_gap,
    ),
    seen_by(
        "if is_used_up(row) then",
        "if false then",
        fire_runs.test_ticks_beyond_the_limit_are_refused_newest_last_and_recorded,
    ),
    seen_by(
        "row.revision == change.seen_revision and",
        "",
        declare.test_a_change_that_saw_an_older_revision_is_refused_with_the_row_as_it_is,
    ),
    seen_by("tonumber(row.cursor) > tonumber(cursor)", "false", declare.test_the_cursor_never_goes_back),
    seen_by(
        "overlap ~= 'allow' and #row.heads > 0 and head_of(row)", "nil", occupancy.test_skip_has_at_most_one_open_run
    ),
    seen_by(
        "run.schedule and fill_place(schedule(run.schedule)) or nil",
        "nil",
        occupancy_changes.test_cancelling_the_pending_head_frees_its_place,
    ),
    seen_by(
        "repark(schedule(name))", "", occupancy_changes.test_changed_from_allow_one_has_the_place_and_the_others_wait
    ),
    seen_by(
        "return position(run) - 8e15",
        "return position(run)",
        occupancy_changes.test_changed_from_allow_the_place_goes_to_one_that_has_started,
    ),
    seen_by(
        "run.attempt > 0 and position(run) - 4e15 or",
        "",
        occupancy_changes.test_changed_from_allow_one_that_had_started_comes_before_earlier_ones_that_had_not,
    ),
    seen_by(
        "int(now)",
        "'+inf'",
        claim.test_a_run_is_not_claimed_before_it_is_due,
    ),
    seen_by("return tasks[task] and", "return", claim.test_a_replica_never_takes_a_task_that_it_does_not_have),
    seen_by(
        "local runs = held_by_claim(args)",
        "local runs = {}",
        claim.test_repeating_a_claim_returns_its_leases_and_takes_no_more,
    ),
    seen_by("due - 60000000 * priority", "due", claim.test_a_step_of_priority_weighs_as_much_as_a_minute_of_waiting),
    seen_by(
        "room[field] = most - (",
        "room[field] = most + 99 - (",
        max_running.test_max_running_counts_the_claims_held_of_the_whole_fleet,
    ),
    seen_by("and not paused[queue]", "", queues.test_a_paused_queue_gives_nothing_to_anybody),
    seen_by(
        "math.max(token, last_token(run.schedule) + 1)", "token", tokens.test_tokens_grow_over_all_runs_of_a_schedule
    ),
    seen_by(
        "math.max(run.token + 1, now)",
        "now",
        tokens.test_a_later_claim_has_a_greater_token_even_when_the_clock_stepped_back,
    ),
    seen_by("int(run.token) == outcome.token", "true", tokens.test_a_stale_token_changes_nothing),
    seen_by("run.outcome ~= 'reaped'", "true", tokens.test_a_reaped_token_is_void_before_anybody_claims_the_run_again),
    seen_by(
        "return 'cancelled'\n",
        "return kind\n",
        finish.test_giving_back_a_run_that_was_asked_to_cancel_ends_it_as_cancelled,
        kind=OutcomeKind.RETRY,
    ),
    seen_by("spends = run.releases >= MOST_RELEASES", "spends = true", finish.test_a_release_spends_no_attempt),
    seen_by(
        "if kind == 'succeeded' then",
        "if true then",
        finish.test_anything_but_success_enqueues_nothing,
        kind=OutcomeKind.FAILED,
    ),
    seen_by(
        "'leases', '-inf', int(now))", "'leases', '-inf', '+inf')", reap.test_only_the_runs_of_expired_workers_are_taken
    ),
    seen_by(
        "or run.attempt - run.given_back > run.retries",
        "",
        reap.test_a_run_without_an_attempt_left_is_lost_and_never_repeated,
    ),
    seen_by(
        "string.match(mine[id], '^%d+') == token",
        "true",
        heartbeat.test_a_report_under_a_stale_token_changes_nothing,
    ),
    seen_by(
        "local holder = new.unique and",
        "local holder = false and",
        enqueue.test_an_open_run_with_the_same_unique_key_is_returned_instead,
    ),
    seen_by(
        "local blocker = ", "local blocker = nil and ", cancel_retry.test_retry_is_refused_while_the_unique_key_is_taken
    ),
    seen_by(
        "or args.opening and args.opening ~= run.opening",
        "",
        cancel_retry.test_repeating_a_retry_by_the_opening_seen_re_opens_once,
    ),
    seen_by("run.ended_at < before", "true", prune.test_what_ended_before_goes_and_what_ended_later_stays),
    seen_by("holder.lease_until > now", "true", locks.test_a_lease_is_over_at_its_end_and_not_before),
]


class MutantLink(Link):
    mutant: Mutant
    met = 0

    async def _run(self, wanted: Script, arguments: tuple[Any, ...], *, writes: bool) -> Any:
        text = wanted.text.replace(self.mutant.guard, self.mutant.by)
        self.met += text != wanted.text
        changed = Script(wanted.name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        return await super()._run(changed, arguments, writes=writes)


class Broken(RedisStore):
    def __init__(self, url: str, namespace: str, mutant: Mutant) -> None:
        super().__init__(url, namespace=namespace)
        self._link = MutantLink(self._address, namespace)
        self._link.mutant = mutant


async def play(mutant: Mutant, store: RedisStore) -> None:
    await store.migrate()
    try:
        wants = inspect.signature(mutant.test).parameters
        await mutant.test(**{name: store for name in ("store", "other") if name in wants}, **mutant.given)
    finally:
        await store.drop()
        await store.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
async def test_a_guard_taken_out_of_a_script_is_seen(mutant: Mutant, redis_server: RedisServer) -> None:
    await play(mutant, RedisStore(redis_server.url(), namespace=redis_server.namespace()))

    broken = Broken(redis_server.url(), redis_server.namespace(), mutant)
    failed = False
    try:
        await play(mutant, broken)
    except (AssertionError, ValueError, StoreError):
        failed = True

    assert broken._link.met, f"no script that the test runs holds {mutant.guard!r}"  # type: ignore[attr-defined]
    assert failed, f"{mutant.test.__name__} does not see that {mutant.guard!r} is gone"


def test_every_mutant_changes_a_script() -> None:
    texts = [_scripts.script(name).text for name in _scripts.names()]
    for mutant in MUTANTS:
        assert any(mutant.guard in text for text in texts), mutant.guard
