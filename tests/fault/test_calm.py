"""Replicas without any fault: one run a tick, and nothing in the server's log for anybody to wake up for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.fleet import Fleet, Load


@pytest.mark.timeout(90)
def test_five_processes_that_all_declare_a_schedule_run_each_tick_once_and_lose_races_silently(
    postgres_url: str, postgres_errors: Callable[[], list[str]], tmp_path: Path
):
    # B053, B067
    fleet = Fleet(postgres_url, tmp_path, Load(fast=2, second=1, lease=15), offsets=(0,) * 5)
    with fleet.running():
        time.sleep(8)
        found = fleet.settle()
    assert not found.all, f"{found}\n{fleet.logs()}"
    assert found.ticks >= 80
    assert found.takeovers == 0
    assert postgres_errors() == []
