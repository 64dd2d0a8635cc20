"""Every broken guard of mutants_shared.py is seen by the test named beside it."""

from __future__ import annotations

import inspect

import pytest

from oncron._groups import LimitKind
from oncron._model import OutcomeKind
from oncron.stores.memory import MemoryStore
from tests.contract import (
    mutants_shared as mutants,
    test_batches as batches,
    test_limiters as limiters,
    test_locks as locks,
    test_races_batches as races_of_batches,
    test_races_locks as races_of_locks,
)
from tests.contract.test_mutants import Caught, assert_is_seen, seen_by
from tests.contract.torn import Torn

SLIDING = LimitKind.SLIDING

CAUGHT: list[Caught] = [
    seen_by(mutants.LockTokenIsTheClock, locks.test_tokens_grow_whatever_the_clock_does, step=0),
    seen_by(mutants.LockTokenIsTheClock, locks.test_tokens_of_slots_taken_at_one_instant_differ),
    seen_by(mutants.SlotsIgnored, locks.test_so_many_hold_it_at_once_as_it_has_slots),
    seen_by(mutants.OwnerForgotten, locks.test_the_same_owner_asking_again_gets_its_token_and_a_longer_lease),
    seen_by(mutants.ExpiredHoldsOn, locks.test_tokens_grow_over_the_expiry_of_a_lease),
    seen_by(mutants.LeaseEndsEarly, locks.test_a_lease_is_over_at_its_end_and_not_before),
    seen_by(mutants.StaleTokenExtends, locks.test_after_another_got_it_the_old_holder_has_lost_it),
    seen_by(
        mutants.ExpiredCannotBeExtended,
        locks.test_a_lease_that_expired_can_be_extended_while_nobody_asked_for_the_lock,
    ),
    seen_by(mutants.ReleasesForOthers, locks.test_releasing_again_says_that_it_was_not_held),
    seen_by(mutants.PruneForgetsLocks, locks.test_pruning_forgets_no_lock_that_was_held_within_a_day),
    seen_by(mutants.GrantsAll, limiters.test_as_much_as_the_rule_allows_is_granted_and_no_more, kind=SLIDING),
    seen_by(mutants.CountsTheFuture, limiters.test_a_clock_that_goes_back_grants_no_more, kind=SLIDING, back=1),
    seen_by(mutants.ForgetsAtTheEnd, limiters.test_a_grant_that_counts_no_more_counts_again_when_the_clock_goes_back),
    seen_by(mutants.RefusedCounts, limiters.test_what_was_refused_is_not_counted, kind=SLIDING),
    seen_by(
        mutants.NonceForgotten, limiters.test_a_nonce_that_was_granted_is_granted_again_and_counted_once, kind=SLIDING
    ),
    seen_by(mutants.OneMore, limiters.test_as_much_as_the_rule_allows_is_granted_and_no_more, kind=LimitKind.BUCKET),
    seen_by(
        mutants.TellsTooLate,
        limiters.test_a_refused_take_fits_when_it_was_told_to_and_not_before,
        kind=LimitKind.WINDOW,
    ),
    seen_by(mutants.SettleAdds, limiters.test_the_true_cost_takes_the_place_of_the_estimate, kind=SLIDING),
    seen_by(mutants.SettleAdds, limiters.test_settling_may_be_repeated, kind=LimitKind.BUCKET),
    seen_by(mutants.SettleGivesBackTheDrained, limiters.test_a_bucket_gives_nothing_back_that_it_has_drained),
    seen_by(mutants.LookingTakes, limiters.test_what_is_taken_is_told_without_taking_any, kind=SLIDING),
    seen_by(mutants.LookingChangesTheRule, limiters.test_looking_by_another_rule_changes_none),
    seen_by(mutants.PruneForgetsTakes, limiters.test_pruning_forgets_no_grant_that_counts),
    seen_by(mutants.PruneForgetsBuckets, limiters.test_a_bucket_is_not_forgotten_with_its_takes),
    seen_by(mutants.CompletesWhileOpen, batches.test_an_open_batch_never_completes),
    seen_by(mutants.CompletesBeforeItsRuns, batches.test_a_closed_batch_completes_with_its_last_run),
    seen_by(mutants.CompletesBeforeItsBatches, batches.test_a_batch_completes_after_the_batches_in_it),
    seen_by(mutants.ParentForgotten, batches.test_completion_goes_up_through_every_level),
    seen_by(mutants.CallsAgain, batches.test_settling_again_calls_nobody_again),
    seen_by(mutants.CancelledSucceeds, batches.test_a_cancelled_run_is_no_death_and_no_success),
    seen_by(mutants.DeathUntold, batches.test_the_first_death_is_told_at_once_and_once, kind=OutcomeKind.FAILED),
    seen_by(mutants.ReopenedForgotten, batches.test_a_dead_run_that_succeeds_when_retried_makes_the_batch_succeed),
    seen_by(mutants.AddsToComplete, batches.test_nothing_is_added_to_a_complete_batch),
    seen_by(mutants.AddsToComplete, batches.test_a_batch_is_opened_only_in_one_that_takes_more),
    seen_by(mutants.AddsToComplete, batches.test_what_an_ending_run_would_add_to_a_complete_batch_is_dropped),
    seen_by(mutants.CallbackMustFit, batches.test_a_callback_that_cannot_be_written_is_dropped),
    seen_by(mutants.OpenedTwice, batches.test_opening_a_batch_again_changes_nothing),
    seen_by(mutants.PrunesRunsOfBatches, batches.test_no_run_of_a_batch_on_record_is_pruned),
    seen_by(mutants.PrunesFromUnderABatch, batches.test_a_batch_is_not_pruned_from_under_the_one_around_it),
    seen_by(mutants.PrunesReopened, batches.test_a_batch_of_which_a_run_was_re_opened_is_not_pruned),
    seen_by(mutants.TornAcquire, races_of_locks.test_of_four_that_want_a_lock_so_many_get_it_as_it_has_slots, slots=2),
    seen_by(mutants.TornAcquire, races_of_locks.test_a_lease_that_expired_is_extended_or_taken_over_and_never_both),
    seen_by(mutants.TornTake, races_of_locks.test_four_that_take_at_once_take_no_more_than_the_rule, kind=SLIDING),
    seen_by(mutants.TornSettle, races_of_batches.test_a_run_is_added_before_the_batch_completes_or_refused),
    seen_by(mutants.TornAdding, races_of_batches.test_what_an_ending_run_adds_is_in_before_its_batch_can_complete),
    seen_by(mutants.TornAdding, races_of_batches.test_a_batch_is_opened_in_another_before_that_completes_or_refused),
]


@pytest.mark.parametrize(
    "caught", CAUGHT, ids=[f"{mutant.__name__}-{test.__name__[5:60]}" for mutant, test, _ in CAUGHT]
)
async def test_a_broken_guard_is_seen(caught: Caught) -> None:
    await assert_is_seen(caught)


def test_every_mutant_is_caught_by_a_test() -> None:
    kept = {kind for kind in vars(mutants).values() if inspect.isclass(kind) and issubclass(kind, MemoryStore)}

    assert kept - {MemoryStore, Torn} == {mutant for mutant, _, _ in CAUGHT}
