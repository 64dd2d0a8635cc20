"""Random stories in virtual time on real stores: the replicas that `test_seeds.py` plays on memory meet in a file or
on a server, and keep the same guarantees there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncron._store import ReadableStore
from oncron.stores import _occupancy as occupancy
from oncron.stores.sqlite import SQLiteStore, _fire
from tests.contract.conftest import connector
from tests.simulation.oracle import Violation
from tests.simulation.scenario import play
from tests.simulation.test_seeds import FOUND
from tests.simulation.twins import Real, play_on, real

KINDS = ("sqlite", "postgres", "redis", "valkey")
LONG = pytest.mark.long


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ReadableStore]:
    return connector(request.param, tmp_path, request, namespace="simulation")


@pytest.fixture
def there(make: Callable[[], ReadableStore]) -> Iterator[Real]:
    with real(make) as there:
        yield there


@pytest.mark.parametrize("seed", [3012, 3028])
@pytest.mark.parametrize("make", ["sqlite", "postgres", "redis", pytest.param("valkey", marks=LONG)], indirect=True)
def test_on_a_real_store_replicas_that_die_stop_and_lose_answers_keep_the_guarantees(seed: int, there: Real) -> None:
    told, calls = play_on(there, seed, minutes=1)

    assert told == play(seed, minutes=1), "another story than memory's"
    assert calls > 500


@LONG
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [*FOUND, *range(4000, 4012)])
@pytest.mark.parametrize("make", KINDS, indirect=True)
def test_longer_stories_on_a_real_store_keep_the_guarantees(seed: int, there: Real) -> None:
    told, calls = play_on(there, seed)
    print(f"\nseed {seed}: {calls} calls, {told}")


def test_a_real_store_that_answers_otherwise_than_memory_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ticks find nobody in their way."""
    monkeypatch.setattr(_fire, "admit", lambda *_given, **_options: occupancy.Verdict())

    with real(lambda: SQLiteStore(tmp_path / "oncron.db")) as there, pytest.raises(Violation, match="the same at"):
        play_on(there, 3012, minutes=1)
