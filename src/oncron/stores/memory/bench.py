"""The memory store of the test kit."""

from __future__ import annotations

from oncron._model import RunRecord
from oncron.stores.memory import MemoryStore


class BenchStore(MemoryStore):
    """A memory store that shows its runs in the order in which they came. It stands for the app's own store, which
    may be one that keeps guards; here nobody else is there to be kept out."""

    async def refuse_guard(self, guard: str) -> None: ...

    def all_runs(self) -> list[RunRecord]:
        with self._step():
            return list(self._run_rows.values())
