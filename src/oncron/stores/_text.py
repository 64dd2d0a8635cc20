"""Text that every store can hold."""

from __future__ import annotations

from typing import Any, cast


def without_surrogates(value: Any) -> Any:
    """Plain data in whose texts lone surrogates, which no store may hold, have become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {without_surrogates(key): without_surrogates(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in cast("list[Any]", value)]
    return value
