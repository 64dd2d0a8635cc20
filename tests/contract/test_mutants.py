"""The suite is shown able to fail: every broken guard of mutants.py is seen by the test named beside it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncron._model import OutcomeKind, Overlap, Status
from oncron.errors import NotFound
from oncron.stores.memory import MemoryStore
from tests.contract import (
    mutants,
    test_cancel_retry as cancel_retry,
    test_claim as claim,
    test_declare as declare,
    test_enqueue as enqueue,
    test_finish as finish,
    test_fire as fire,
    test_fire_runs as fire_runs,
    test_guard as guard,
    test_heartbeat as heartbeat,
    test_max_running as max_running,
    test_occupancy as occupancy,
    test_occupancy_changes as occupancy_changes,
    test_pages as pages,
    test_prune as prune,
    test_queue_limits as queue_limits,
    test_queues as queues,
    test_races_runs as races_of_runs,
    test_races_ticks as races_of_ticks,
    test_reader as reader,
    test_reap as reap,
    test_run_now as run_now,
    test_then as then,
    test_tokens as tokens,
    test_versions as versions,
    torn,
)
from tests.contract.race import Racers

ContractTest = Callable[..., Awaitable[None]]

Caught = tuple[type[MemoryStore], ContractTest, dict[str, Any]]


def seen_by(mutant: type[MemoryStore], test: ContractTest, **given: Any) -> Caught:
    return mutant, test, given


CAUGHT: list[Caught] = [
    seen_by(
        mutants.CursorNotCompared,
        fire.test_of_two_replicas_that_offer_the_same_tick_the_second_is_stale_and_writes_nothing,
    ),
    seen_by(mutants.CursorNotCompared, fire.test_a_tick_is_not_fired_again_after_its_run_was_pruned),
    seen_by(mutants.RevisionNotCompared, fire.test_a_plan_made_from_an_older_definition_is_stale),
    seen_by(mutants.OlderZonesFire, versions.test_an_older_plan_is_stale_while_a_live_scheduler_knows_better),
    seen_by(mutants.PausedFires, fire.test_only_an_active_schedule_fires, status=Status.PAUSED),
    seen_by(mutants.PlanNotConfined, fire.test_a_gap_outside_of_what_the_plan_passes_makes_it_stale),
    seen_by(mutants.EarlyAccepted, fire.test_a_tick_later_than_the_clock_of_the_store_is_refused),
    seen_by(mutants.TickIdRandom, fire.test_a_tick_whose_run_is_on_record_makes_no_second_one),
    seen_by(mutants.OverwritesRunOnRecord, fire.test_a_tick_whose_run_is_on_record_makes_no_second_one),
    seen_by(mutants.CursorMovedWithoutRecord, fire.test_ticks_that_are_passed_without_a_run_are_recorded_as_a_gap),
    seen_by(mutants.CursorMovedWithoutRecord, declare.test_what_a_change_passes_is_recorded_in_the_same_step),
    seen_by(mutants.GapPerTick, fire.test_a_gap_that_goes_on_for_the_same_reason_extends_the_newest_one),
    seen_by(mutants.GapsOfTwoStretchesJoined, fire.test_a_gap_with_another_reason_or_after_a_run_is_a_row_of_its_own),
    seen_by(mutants.LimitIgnored, fire_runs.test_ticks_beyond_the_limit_are_refused_newest_last_and_recorded),
    seen_by(mutants.SupersededStillCounts, occupancy.test_a_superseded_run_does_not_count_for_the_limit),
    seen_by(
        mutants.FireNotRepeatable, fire.test_the_same_fire_id_answers_fired_again_with_its_leases_while_they_are_held
    ),
    seen_by(mutants.FireRepeatedWithoutLeases, fire.test_a_batch_may_be_repeated_as_a_whole),
    seen_by(mutants.RepeatedForEver, fire.test_a_repetition_after_something_else_happened_is_stale),
    seen_by(
        mutants.DeclareNotCompared, declare.test_a_change_that_saw_an_older_revision_is_refused_with_the_row_as_it_is
    ),
    seen_by(mutants.DeclareComparesRevisionOnly, declare.test_a_change_that_saw_an_older_cursor_is_refused),
    seen_by(mutants.CursorGoesBack, declare.test_the_cursor_never_goes_back),
    seen_by(mutants.CursorPassesTheFuture, declare.test_a_cursor_is_not_moved_past_the_clock_of_the_store),
    seen_by(mutants.VersionStands, reader.test_the_version_rises_with_every_change_of_a_schedule_and_with_nothing_else),
    seen_by(mutants.NeverReparks, occupancy_changes.test_changed_from_allow_one_has_the_place_and_the_others_wait),
    seen_by(mutants.OccupancyIgnored, occupancy.test_skip_has_at_most_one_open_run),
    seen_by(mutants.OccupancyIgnored, occupancy.test_queue_runs_one_at_a_time_in_tick_order),
    seen_by(mutants.OccupancyIgnored, run_now.test_run_now_is_refused_where_a_tick_would_be),
    seen_by(
        mutants.PlaceNeverFilled,
        occupancy_changes.test_every_ending_frees_the_place_in_the_same_step_and_says_so,
        ending=OutcomeKind.FAILED,
    ),
    seen_by(mutants.PlaceNeverFilled, occupancy_changes.test_cancelling_the_pending_head_frees_its_place),
    seen_by(mutants.PlaceNeverFilled, occupancy_changes.test_reaping_the_head_for_good_frees_its_place),
    seen_by(mutants.ExpiredFreesPlace, occupancy.test_skip_counts_an_expired_lease_as_open),
    seen_by(mutants.RetryLosesPlace, occupancy.test_a_retry_keeps_its_place_at_the_head),
    seen_by(mutants.CatchupSuperseded, occupancy.test_a_later_tick_does_not_supersede_a_catch_up, overlap=Overlap.WAIT),
    seen_by(
        mutants.CancelPolicyStopsNobody,
        occupancy.test_cancel_asks_the_running_one_to_stop_and_lets_the_new_one_wait_for_its_end,
    ),
    seen_by(mutants.ClaimsEarly, claim.test_a_run_is_not_claimed_before_it_is_due),
    seen_by(mutants.ClaimsForeignTasks, claim.test_a_replica_never_takes_a_task_that_it_does_not_have),
    seen_by(mutants.ClaimsParked, occupancy.test_wait_lets_one_wait_behind_the_one_that_runs),
    seen_by(mutants.ClaimsWhatIsHeld, claim.test_a_run_that_is_held_is_not_claimed_by_another),
    seen_by(mutants.PriorityBeforeAge, claim.test_a_step_of_priority_weighs_as_much_as_a_minute_of_waiting),
    seen_by(mutants.QueueOrderIgnored, claim.test_queues_are_emptied_in_the_order_given),
    seen_by(mutants.ClaimNotRepeatable, claim.test_repeating_a_claim_returns_its_leases_and_takes_no_more),
    seen_by(mutants.MaxRunningIgnored, max_running.test_max_running_counts_the_claims_held_of_the_whole_fleet),
    seen_by(mutants.ClaimForgetsTheLease, claim.test_a_claim_extends_a_lease_that_has_little_left),
    seen_by(mutants.TokenIsTheClock, tokens.test_a_later_claim_has_a_greater_token_even_when_the_clock_stepped_back),
    seen_by(mutants.TokenPerRunOnly, tokens.test_tokens_grow_over_all_runs_of_a_schedule),
    seen_by(mutants.TokenNotChecked, tokens.test_a_stale_token_changes_nothing),
    seen_by(mutants.TokenNotChecked, heartbeat.test_a_report_under_a_stale_token_changes_nothing),
    seen_by(mutants.ReapedTokenStillGood, tokens.test_a_reaped_token_is_void_before_anybody_claims_the_run_again),
    seen_by(mutants.CommitsTwice, finish.test_the_first_outcome_of_a_token_wins_over_a_different_one),
    seen_by(mutants.CommitsTwice, finish.test_a_repeated_success_enqueues_nothing_again),
    seen_by(
        mutants.FinishNotRepeatable,
        finish.test_the_same_token_again_is_told_what_was_recorded,
        kind=OutcomeKind.SUCCEEDED,
    ),
    seen_by(
        mutants.CancelNotSticky,
        finish.test_giving_back_a_run_that_was_asked_to_cancel_ends_it_as_cancelled,
        kind=OutcomeKind.RETRY,
    ),
    seen_by(
        mutants.CancelBeatsSuccess,
        finish.test_an_ending_of_a_run_that_was_asked_to_cancel_stays_what_it_is,
        kind=OutcomeKind.SUCCEEDED,
    ),
    seen_by(mutants.ReleaseSpends, finish.test_a_release_spends_no_attempt),
    seen_by(mutants.ReleasesForEver, finish.test_a_release_that_spends_the_last_attempt_ends_the_run_as_lost),
    seen_by(mutants.EnqueuesWithoutSuccess, finish.test_anything_but_success_enqueues_nothing, kind=OutcomeKind.FAILED),
    seen_by(mutants.EnqueuesWithoutSuccess, finish.test_a_stale_token_enqueues_nothing),
    seen_by(mutants.ReapsTheLiving, reap.test_only_the_runs_of_expired_workers_are_taken),
    seen_by(mutants.ReapsTooLate, heartbeat.test_what_a_worker_that_left_still_holds_expires_by_its_old_lease),
    seen_by(mutants.ReaperRepeatsAtMostOnce, reap.test_a_run_without_an_attempt_left_is_lost_and_never_repeated),
    seen_by(mutants.StraysUntold, heartbeat.test_a_worker_is_told_of_strays_that_a_lost_answer_would_have_brought),
    seen_by(mutants.LossUntold, heartbeat.test_a_worker_is_told_what_it_has_lost),
    seen_by(mutants.ExpiredCannotBeRevived, heartbeat.test_a_heartbeat_revives_a_lease_that_expired_and_was_not_reaped),
    seen_by(mutants.UniqueIgnored, enqueue.test_an_open_run_with_the_same_unique_key_is_returned_instead),
    seen_by(mutants.UniqueIgnored, fire_runs.test_a_tick_whose_unique_key_is_taken_is_refused_and_recorded),
    seen_by(mutants.EnqueueNotRepeatable, enqueue.test_repeating_an_enqueue_whose_run_has_ended_does_not_run_it_again),
    seen_by(
        mutants.RetryTakesAnyPlace,
        cancel_retry.test_retry_is_refused_while_the_place_of_its_schedule_is_taken,
        overlap=Overlap.SKIP,
    ),
    seen_by(mutants.RetryTakesAnyPlace, cancel_retry.test_retry_is_refused_while_the_unique_key_is_taken),
    seen_by(mutants.RetryIgnoresOpening, cancel_retry.test_repeating_a_retry_by_the_opening_seen_re_opens_once),
    seen_by(mutants.PrunesFailedEarly, prune.test_failed_and_lost_runs_have_their_own_age),
    seen_by(mutants.PrunesOpenRuns, prune.test_an_open_run_is_never_pruned),
    seen_by(mutants.PrunesFreshGaps, prune.test_a_gap_that_was_recorded_late_is_kept_for_its_time),
    seen_by(
        mutants.QueueLimitIgnored, queue_limits.test_a_queue_gives_no_more_than_it_may_have_held_by_the_whole_fleet
    ),
    seen_by(mutants.QueueLimitIgnored, queue_limits.test_leases_on_the_spot_stop_at_the_limits_of_queue_and_fleet),
    seen_by(
        mutants.QueueLimitIgnored,
        queue_limits.test_a_single_tick_is_not_leased_into_a_full_queue_or_fleet,
        wants=queue_limits.ONE_AT_A_TIME,
    ),
    seen_by(mutants.FleetLimitIgnored, queue_limits.test_the_fleet_holds_no_more_than_it_may),
    seen_by(mutants.FleetLimitIgnored, queue_limits.test_the_limits_of_task_queue_and_fleet_hold_together),
    seen_by(mutants.QueueLimitPerTask, queue_limits.test_a_limit_of_a_queue_counts_all_its_tasks),
    seen_by(mutants.PausedQueueGives, queues.test_a_paused_queue_gives_nothing_to_anybody),
    seen_by(mutants.PausedQueueGives, queues.test_fire_leases_nothing_from_a_paused_queue_also_in_a_batch),
    seen_by(mutants.PausedQueueGives, queues.test_what_waits_in_a_paused_queue_is_not_announced),
    seen_by(mutants.PausedForOneSession, queues.test_after_a_pause_nobody_takes_whoever_was_first),
    seen_by(mutants.ParkedIsReady, queues.test_what_is_parked_waits_and_is_not_ready),
    seen_by(
        mutants.ThenWithEveryOutcome,
        then.test_what_leaves_the_run_pending_writes_nothing_then,
        kind=OutcomeKind.RELEASED,
    ),
    seen_by(mutants.ThenWithSuccessAlone, then.test_every_end_writes_what_comes_then, kind=OutcomeKind.LOST),
    seen_by(
        mutants.ThenBeforeThePlaceIsFree,
        then.test_what_comes_then_may_take_the_key_and_the_place_that_the_end_frees,
    ),
    seen_by(mutants.ThenRefusesTheEnd, then.test_what_would_be_refused_is_dropped_and_the_run_ends),
    seen_by(mutants.GuardForgotten, guard.test_a_lease_on_the_spot_tells_the_guard),
    seen_by(mutants.GuardForgotten, guard.test_a_run_that_is_enqueued_keeps_its_guard_through_its_life),
    seen_by(mutants.PrunesNewestFailed, prune.test_of_the_failed_and_lost_only_the_newest_are_kept_however_young),
    seen_by(mutants.KeepsNoNumber, prune.test_none_may_be_kept_and_without_a_number_all_are),
    seen_by(mutants.SurplusOfEveryEnd, prune.test_what_did_not_fail_counts_for_nothing_and_is_kept),
    seen_by(mutants.PrunesRunsOfBatches, prune.test_no_run_of_a_batch_on_record_is_pruned),
    seen_by(mutants.TagPrefixFound, pages.test_schedules_are_found_by_tag),
    seen_by(mutants.PageBeginsWithTheLast, pages.test_schedules_are_paged_by_name),
    seen_by(torn.TornFire, races_of_ticks.test_of_four_replicas_that_fire_one_tick_one_does),
    seen_by(torn.TornFire, races_of_ticks.test_either_the_pause_or_the_tick_wins, status=Status.PAUSED),
    seen_by(torn.TornEntry, races_of_ticks.test_of_run_now_and_a_tick_one_gets_the_place),
    seen_by(
        torn.TornEntry,
        races_of_ticks.test_a_tick_that_comes_to_wait_beside_an_ending_is_never_forgotten,
        overlap=Overlap.QUEUE,
        ending="finish",
    ),
    seen_by(torn.TornClaim, races_of_runs.test_each_run_is_claimed_by_one),
    seen_by(torn.TornCount, races_of_runs.test_max_running_holds_while_four_claim),
    seen_by(torn.TornCount, queue_limits.test_a_limit_holds_while_four_claim, kind="queue"),
    seen_by(torn.TornCount, queue_limits.test_a_limit_holds_while_four_claim, kind="fleet"),
    seen_by(torn.TornFinish, then.test_of_two_ends_at_once_one_writes_its_follower),
    seen_by(torn.TornKey, races_of_runs.test_of_four_that_enqueue_one_unique_key_one_does_and_all_are_told_of_it),
    seen_by(torn.TornKey, races_of_ticks.test_of_two_schedules_that_share_a_unique_key_one_gets_it),
    seen_by(torn.TornFinish, races_of_runs.test_of_two_endings_under_one_token_one_is_recorded),
    seen_by(torn.TornFinish, races_of_runs.test_of_reap_and_finish_one_wins_and_the_other_knows),
    seen_by(torn.TornReap, races_of_runs.test_of_reap_and_finish_one_wins_and_the_other_knows),
    seen_by(torn.TornReap, races_of_runs.test_of_reap_and_heartbeat_one_wins_and_the_other_knows),
    seen_by(torn.TornDeclare, races_of_ticks.test_of_four_replicas_that_declare_a_new_schedule_one_does),
    seen_by(torn.TornCancel, races_of_runs.test_a_run_is_claimed_or_cancelled_and_never_claimed_after),
]


async def play(test: ContractTest, store: MemoryStore, given: dict[str, Any]) -> None:
    """Runs one test of the suite on this store, whatever fixtures it asks for."""
    wants = inspect.signature(test).parameters
    sessions = {name: store for name in ("store", "other") if name in wants}
    if "racers" not in wants:
        await test(**sessions, **given)
        return
    async with Racers(lambda: store, sessions=4) as racers:
        await test(**sessions, racers=racers, **given)


@pytest.mark.parametrize(
    ("mutant", "test", "given"), CAUGHT, ids=[f"{mutant.__name__}-{test.__name__[5:60]}" for mutant, test, _ in CAUGHT]
)
async def test_a_broken_guard_is_seen(mutant: type[MemoryStore], test: ContractTest, given: dict[str, Any]) -> None:
    await assert_is_seen((mutant, test, given))


async def assert_is_seen(caught: Caught) -> None:
    """The test passes on a store that is whole, and fails on the mutant."""
    mutant, test, given = caught
    await play(test, MemoryStore(), given)

    failed = False
    try:
        await play(test, mutant(), given)
    except (AssertionError, ValueError, KeyError, NotFound, pytest.fail.Exception):
        failed = True

    assert failed, f"{test.__name__} does not see what {mutant.__name__} breaks: {mutant.__doc__}"


def test_every_mutant_is_caught_by_a_test() -> None:
    names = {**vars(mutants), **vars(torn)}.values()
    kept = {kind for kind in names if inspect.isclass(kind) and issubclass(kind, MemoryStore)}

    assert kept - {MemoryStore, torn.Torn} == {mutant for mutant, _, _ in CAUGHT}
