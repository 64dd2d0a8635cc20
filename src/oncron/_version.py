"""Which oncron this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """This package's version; 0 in a tree that was never installed."""
    try:
        return metadata.version("oncron")
    except metadata.PackageNotFoundError:
        return "0"
