"""Batches: runs that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from oncron._groups import BatchRecord, NewBatch
from oncron.stores import _missing
from oncron.stores.postgres import _steps
from oncron.stores.postgres._wire import encode

_batch = msgspec.json.Decoder(BatchRecord).decode
_batches = msgspec.json.Decoder(list[BatchRecord]).decode


class Batches(Protocol):
    """The steps that open, close and settle batches."""

    async def open_batch(self, batch: NewBatch, *, now: int | None = None) -> BatchRecord:
        for callback in (batch.on_complete, batch.on_success, batch.on_death):
            if callback is not None:
                _steps.checked_id(callback.id)
        record = await self._step("open_batch", encode(batch), now)
        if record is None:
            raise _missing.takes_no_more(batch.parent or "")
        return _batch(record)

    async def close_batch(self, batch_id: str, *, now: int | None = None) -> BatchRecord:
        return self._known_batch(batch_id, await self._step("close_batch", batch_id, now))

    async def invalidate_batch(
        self,
        batch_id: str,
        *,
        now: int | None = None,  # noqa: ARG002 - whenever it is
    ) -> BatchRecord:
        return self._known_batch(batch_id, await self._step("invalidate_batch", batch_id))

    async def delete_batch(self, batch_id: str, *, now: int | None = None) -> bool:
        return await self._step("delete_batch", batch_id, now) == b"true"

    async def settle_batches(
        self, ids: Sequence[str] | None = None, *, after: str = "", limit: int = 100, now: int | None = None
    ) -> list[BatchRecord]:
        return _batches(await self._step("settle_batches", encode(ids), after, limit, now))

    def _known_batch(self, batch_id: str, record: bytes | None) -> BatchRecord:
        if record is None:
            raise _missing.no_batch(batch_id)
        return _batch(record)

    async def _step(self, function: str, *arguments: str | bytes | int | None) -> Any:
        """Call a function of the schema; its answer as JSON."""
        ...
