"""Random stories in virtual time: every one that a seed tells must keep the guarantees.

A story that fails names its seed: `play(seed)` tells it again, step by step the same. Seeds that
found a defect are kept below, with what it was.
"""

from __future__ import annotations

import pytest

from tests.simulation.scenario import play

FOUND = {
    20: "a run that raised SystemExit",
    103: "a claim answered after its lease was over was started all the same",
    168: "a process stopped for a minute ran a finished run again when an old answer came in",
    567: "a run-now that superseded waiting ticks below their limit",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_once_found_a_defect_keeps_the_guarantees(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", range(1000, 1016))
def test_replicas_that_die_stop_and_lose_answers_keep_the_guarantees(seed: int) -> None:
    told = play(seed, minutes=3)

    assert told.steps > 10


@pytest.mark.parametrize("seed", range(2000, 2008))
def test_in_good_weather_nothing_is_ever_taken_over(seed: int) -> None:
    assert play(seed, minutes=3, calm=True).takeovers == 0


@pytest.mark.parametrize("seed", [1003, 1007])
def test_the_same_seed_tells_the_same_story(seed: int) -> None:
    assert play(seed, minutes=2) == play(seed, minutes=2)


@pytest.mark.long
@pytest.mark.parametrize("block", range(40))
def test_hundreds_of_stories_keep_the_guarantees(block: int) -> None:
    for seed in range(10_000 + 25 * block, 10_000 + 25 * (block + 1)):
        play(seed)
