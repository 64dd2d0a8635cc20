"""Fixtures for replicas as real processes.

small_disk         64 megabytes in memory that a test may fill; `refused` if this user may not mount
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.disk import SmallDisk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 64)
    yield disk
    disk.close()
