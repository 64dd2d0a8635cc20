"""An earlier release of this very code, out of the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fault.fleet import REPOSITORY

EARLIER = "724996d92af35386b8e2f885c6e664278434b144"
"""Of the same major version of the schema, before queues, locks and batches had tables of their own."""


def earlier_release(home: Path) -> Path:
    """The tree of EARLIER, unpacked below `home`. Skips where there is no history to take it from."""
    try:
        done = subprocess.run(
            ["git", "archive", "--format=tar", EARLIER, "src", "tests"],
            cwd=REPOSITORY, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("git is not installed, so the earlier release cannot be had from the history")
    if done.returncode:
        pytest.skip(
            f"the history of this copy does not reach back to {EARLIER[:7]} (an archive, or a shallow clone: "
            "`git fetch --unshallow`)"
        )
    place = home / "earlier"
    place.mkdir()
    subprocess.run(["tar", "-x", "-C", str(place)], input=done.stdout, timeout=60, check=True)
    return place
