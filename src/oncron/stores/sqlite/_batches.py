"""Batches: runs that belong together. What they count is read from the runs, so nothing is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from oncron._groups import BatchRecord, NewBatch
from oncron._model import NewRun
from oncron.stores import _missing
from oncron.stores.sqlite._enqueue import enqueue_if_it_may
from oncron.stores.sqlite._step import Step, listed

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(NewRun).decode


def open_batch(step: Step, batch: NewBatch) -> BatchRecord:
    if _row(step, batch.id) is None:
        if batch.parent is not None and not step.rows("batch.takes_more", ids=listed([batch.parent])):
            raise _missing.takes_no_more(batch.parent)
        step.do(
            "batch.open",
            id=batch.id,
            parent=batch.parent,
            data=batch.data,
            now=step.now,
            on_complete=_text(batch.on_complete),
            on_success=_text(batch.on_success),
            on_death=_text(batch.on_death),
        )
    return _counted(step, _known(step, batch.id))


def close(step: Step, batch_id: str) -> BatchRecord:
    _known(step, batch_id)
    step.do("batch.close", id=batch_id)
    _settle(step, batch_id)
    return _counted(step, _known(step, batch_id))


def invalidate(step: Step, batch_id: str) -> BatchRecord:
    _known(step, batch_id)
    step.do("batch.invalidate", id=batch_id)
    return _counted(step, _known(step, batch_id))


def delete(step: Step, batch_id: str) -> bool:
    row = _row(step, batch_id)
    if row is None:
        return False
    step.do("batch.delete", id=batch_id)
    if row.parent is not None:
        _settle(step, row.parent)
    return True


def settle(step: Step, ids: Sequence[str] | None, after: str, limit: int) -> list[BatchRecord]:
    found = _page(step, ids, after, limit)
    for batch_id in found:
        _settle(step, batch_id)
    return [_counted(step, _known(step, batch_id)) for batch_id in found]


def settled(step: Step, ids: Sequence[str] | None, after: str, limit: int) -> list[BatchRecord] | None:
    """What `settle` would answer, if it would write nothing; otherwise None. Writes nothing."""
    found = [_known(step, batch_id) for batch_id in _page(step, ids, after, limit)]
    if any(_Fate.of(step, row).is_new for row in found):
        return None
    return [_counted(step, row) for row in found]


def get(step: Step, batch_id: str) -> BatchRecord | None:
    row = _row(step, batch_id)
    return None if row is None else _counted(step, row)


def batches(step: Step, *, dead: bool, before: str | None, limit: int) -> list[BatchRecord]:
    found = step.rows("batch.list", dead=dead, before=before or "", limit=limit)
    return [_counted(step, _known(step, batch_id)) for (batch_id,) in found]


# --- settling ---------------------------------------------------------------------------------


class _Fate(NamedTuple):
    """What has become of a batch that is not on its row yet."""

    dies: bool = False
    completes: bool = False
    succeeds: bool = False
    quiet_again: bool = False
    """A run was opened again, and now nothing is open any more."""

    @property
    def is_new(self) -> bool:
        return any(self)

    @classmethod
    def of(cls, step: Step, row: BatchRecord) -> _Fate:
        if row.succeeded_at is not None:
            return cls()
        facts = step.row("batch.facts", id=row.id)
        is_open, has_dead, has_cancelled, has_incomplete, has_unsuccessful, reopened = map(bool, facts or (0,) * 6)
        quiet = row.closed and not is_open and not has_incomplete
        return cls(
            dies=has_dead and row.died_at is None,
            completes=quiet and row.completed_at is None,
            succeeds=quiet and not (has_dead or has_cancelled or has_unsuccessful),
            quiet_again=quiet and reopened,
        )


def _settle(step: Step, batch_id: str) -> None:
    """The batch, and those around it as far as it changes them."""
    at: str | None = batch_id
    while at is not None and (row := _row(step, at)) is not None:
        fate = _Fate.of(step, row)
        if fate.is_new:
            _write(step, row, fate)
        at = row.parent if fate.completes or fate.succeeds else None


def _write(step: Step, row: BatchRecord, fate: _Fate) -> None:
    for happens, callback in (
        (fate.dies, row.on_death),
        (fate.completes, row.on_complete),
        (fate.succeeds, row.on_success),
    ):
        if happens and callback is not None:
            enqueue_if_it_may(step, callback)
    step.do(
        "batch.settle",
        id=row.id,
        died_at=step.now if fate.dies else row.died_at,
        completed_at=step.now if fate.completes else row.completed_at,
        succeeded_at=step.now if fate.succeeds else None,
        quiet=fate.completes or fate.succeeds or fate.quiet_again,
    )


# --- rows -------------------------------------------------------------------------------------


def _page(step: Step, ids: Sequence[str] | None, after: str, limit: int) -> list[str]:
    if ids is None:
        rows = step.rows("batch.unsettled", after=after, limit=limit)
    else:
        rows = step.rows("batch.known", ids=listed(sorted(set(ids))), after=after, limit=limit)
    return [row[0] for row in rows]


def _known(step: Step, batch_id: str) -> BatchRecord:
    row = _row(step, batch_id)
    if row is None:
        raise _missing.no_batch(batch_id)
    return row


def _row(step: Step, batch_id: str) -> BatchRecord | None:
    """Without counts."""
    row = step.row("batch.get", id=batch_id)
    if row is None:
        return None
    id_, parent, data, created_at, closed, invalid, died_at, completed_at, succeeded_at, *callbacks = row
    on_complete, on_success, on_death = (None if text is None else _decode(text) for text in callbacks)
    return BatchRecord(
        id=id_,
        parent=parent,
        data=data,
        created_at=created_at,
        closed=closed == 1,
        invalid=invalid == 1,
        died_at=died_at,
        completed_at=completed_at,
        succeeded_at=succeeded_at,
        on_complete=on_complete,
        on_success=on_success,
        on_death=on_death,
    )


def _counted(step: Step, row: BatchRecord) -> BatchRecord:
    runs = dict(step.rows("batch.runs", id=row.id))
    return replace(row, runs=runs, children=step.value("batch.children", id=row.id))


def _text(callback: NewRun | None) -> str | None:
    return None if callback is None else _encode(callback).decode()
