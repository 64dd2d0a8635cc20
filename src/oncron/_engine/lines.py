"""What a run has said: dated lines, the newest of them within a limit."""

from __future__ import annotations

from collections import deque

from oncron import _defaults as limits
from oncron._clock import from_us
from oncron._lifecycle import cut

_DROPPED = "(earlier lines were dropped)"


class Lines:
    """Not guarded: an execution's are, by its lock."""

    def __init__(self, earlier: str | None) -> None:
        self._lines = deque[str]() if earlier is None else deque(earlier.split("\n"))
        self._size = sum(map(_size, self._lines))

    def add(self, at: int, text: str) -> None:
        """A line of that instant (microseconds), which may be several."""
        text = text.encode("utf-8", "replace").decode().replace("\0", "\\0").rstrip()
        stamp = from_us(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        added = cut(f"{stamp} {text}", limits.LOG_LINE_BYTES).split("\n")
        self._lines.extend(added)
        self._size += sum(map(_size, added))
        if self._size > limits.LOG_BYTES:
            self._drop()

    def _drop(self) -> None:
        if self._lines[0] == _DROPPED:
            self._size -= _size(self._lines.popleft())
        while self._size > limits.LOG_BYTES - _size(_DROPPED):
            self._size -= _size(self._lines.popleft())
        self._lines.appendleft(_DROPPED)
        self._size += _size(_DROPPED)

    @property
    def text(self) -> str:
        return "\n".join(self._lines)


def _size(line: str) -> int:
    return len(line.encode()) + 1
