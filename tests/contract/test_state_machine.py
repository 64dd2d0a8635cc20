"""Random calls on MemoryStore and on another store: the same answers, the same rows, step by step.

Hypothesis plays and, when the two differ, finds the shortest play that shows it. More plays than
the default: ONCRON_PLAYS=500.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from oncron._store import ReadableStore
from oncron.stores.memory import MemoryStore
from tests.contract import mutants
from tests.contract.conftest import KINDS, connector
from tests.contract.machine import PLAYS, played


@pytest.mark.timeout(600)  # a play that differs is made as short as it can be
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_another_store_is_not_to_be_told_from_memory(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    fresh = itertools.count(1)

    def make() -> ReadableStore:
        directory = tmp_path / str(next(fresh))
        directory.mkdir()
        return connector(kind, directory, request)()

    played(make, PLAYS)


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.CursorNotCompared,
        mutants.FireNotRepeatable,
        mutants.LimitIgnored,
        mutants.GapPerTick,
        mutants.PlaceNeverFilled,
        mutants.CatchupSuperseded,
        mutants.UniqueIgnored,
        mutants.QueueLimitIgnored,
        mutants.FleetLimitIgnored,
        mutants.PausedForOneSession,
        mutants.ThenWithSuccessAlone,
        mutants.PrunesRunsOfBatches,
    ],
)
def test_a_broken_guard_is_found_by_playing(mutant: type[MemoryStore]) -> None:
    with pytest.raises(AssertionError):
        played(mutant, 3000, shrink=False)  # it ends with the first play that finds it
