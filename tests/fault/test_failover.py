"""The primary dies and its standby takes over, while replicas are at work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from oncron._model import GapReason
from oncron.cli.ledger import Line
from tests.conftest import missed
from tests.fault.fleet import Fleet, Load, machine_us
from tests.fault.oracle import Evidence
from tests.fault.standby import LAGS_FOR, Standby, acknowledge_by_standby, with_both
from tests.servers import PostgresServer, ServerMissing

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def standby(own_postgres: PostgresServer) -> Iterator[Standby]:
    try:
        server = Standby(own_postgres)
    except ServerMissing as missing:
        missed(missing)
    server.start()
    yield server
    server.close()


def test_with_a_synchronous_standby_a_fail_over_loses_and_doubles_nothing(
    own_postgres: PostgresServer, standby: Standby, tmp_path: Path
):
    acknowledge_by_standby(own_postgres)
    url = with_both(own_postgres, standby, own_postgres.create_database())
    fleet = Fleet(url, tmp_path, Load(lease=2), offsets=(0, 300, -60))
    with fleet.running():
        fleet.until(lambda: len(fleet.lines()) > 30, 30, "work to be done")
        with fleet.disturbing("fail-over", echo=2 + fleet.load.lease):
            own_postgres.stop("immediate")
            time.sleep(0.5)
            standby.promote()
        fleet.until(lambda: fleet.lines()[-1].at > machine_us() - 500_000, 30, "work to go on")
        time.sleep(1.5)
        found = fleet.settle()
    print(f"\n{found.summary()}")
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= 30


def forgetting(primary: PostgresServer, standby: Standby, home: Path, mutant: str | None = None) -> Forgotten:
    """A fail-over to a standby that was behind, and what became of the ticks that it forgot."""
    url = with_both(primary, standby, primary.create_database())
    fleet = Fleet(url, home, Load(lease=2, mutant=mutant), offsets=(0, 300, -60))
    with fleet.running():
        time.sleep(2)
        lost_from = machine_us()
        standby.detach()
        time.sleep(LAGS_FOR)
        with fleet.disturbing("fail-over", echo=2 + fleet.load.lease):
            lost_until = machine_us()
            primary.stop("immediate")
            standby.promote()
        time.sleep(4)
        evidence = fleet.end()
    lost = Forgotten(evidence, lost_from, lost_until)
    print(f"\n{lost.summary()}")
    assert not lost.wrong, "\n".join([lost.summary(), *lost.wrong[:20], fleet.logs()])
    return lost


@pytest.mark.long
def test_with_an_asynchronous_standby_what_a_fail_over_forgot_is_named_and_tokens_still_grow(
    own_postgres: PostgresServer, standby: Standby, tmp_path: Path
):
    """What a live replica remembers is not run again; a tick that none of those remembers who come first is."""
    lost = forgetting(own_postgres, standby, tmp_path)
    assert lost.named > lost.repeated


@pytest.mark.long
def test_a_fail_over_that_nobody_remembers_shows_as_runs_that_ran_again(
    own_postgres: PostgresServer, standby: Standby, tmp_path: Path
):
    """The oracle is shown to fail, on replicas whose memory was taken away."""
    lost = forgetting(own_postgres, standby, tmp_path, mutant="nothing remembered")
    assert not lost.named
    assert lost.repeated >= 5


class Forgotten:
    """What a store that lost its newest commits did with the ticks of (since, until]."""

    def __init__(self, evidence: Evidence, since: int, until: int) -> None:
        self._since, self._until = since - 200_000, until
        self._rolled_back = [gap for gap in evidence.gaps if gap.reason is GapReason.STORE_ROLLED_BACK]
        self.wrong: list[str] = []
        self.named = sum(gap.count for gap in self._rolled_back)
        self.repeated = 0
        by_run: dict[str, list[Line]] = {}
        for line in evidence.lines:
            by_run.setdefault(line.run, []).append(line)
        for lines in by_run.values():
            self._run(lines)
        ended = {(line.schedule, line.tick) for line in evidence.lines if line.what == "end"}
        for schedule, promise in evidence.promises.items():
            for tick in promise.ticks():
                if (schedule, tick) not in ended and not self._is_named(schedule, tick):
                    self.wrong.append(f"missing: {schedule} at {tick / 1e6:.3f} has neither an end nor a record")
        self.wrong += [
            f"missing: {gap.schedule} passed {gap.count} ticks: {gap.reason}"
            for gap in evidence.gaps
            if gap.count and gap not in self._rolled_back
        ]

    def summary(self) -> str:
        return (
            f"{self.named} ticks that had been settled are on record as store_rolled_back; "
            f"{self.repeated} runs that were forgotten, or whose end was, ran again"
        )

    def _is_named(self, schedule: str, tick: int) -> bool:
        return any(gap.schedule == schedule and gap.first <= tick <= gap.last for gap in self._rolled_back)

    def _run(self, lines: Sequence[Line]) -> None:
        name = f"{lines[0].schedule} at {lines[0].tick / 1e6:.3f}"
        starts = [line for line in lines if line.what == "start"]
        ends = [line for line in lines if line.what == "end"]
        tokens = [line.token for line in starts]
        if tokens != sorted(set(tokens)):
            self.wrong.append(f"tokens: {name} started under {tokens}, which do not grow")
        if starts[0].at < starts[0].tick:
            self.wrong.append(f"early: {name}")
        if len(ends) > 1:
            self.repeated += 1
            if not self._since <= starts[0].at <= self._until or len(ends) > 2:
                self.wrong.append(f"extra: {name} ended {len(ends)} times, and its first start was not forgotten")
            elif self._is_named(lines[0].schedule, lines[0].tick):
                self.wrong.append(f"extra: {name} is on record as settled before, and ran again")
