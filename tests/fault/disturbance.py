"""What was done to a fleet, as its journal has it."""

from __future__ import annotations

from dataclasses import dataclass

EVERYBODY = "*"


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """A fault that was injected. `worker` is a name of the ledger, or EVERYBODY: the store was hit."""

    kind: str
    worker: str
    began: int
    ended: int

    def touches(self, worker: str, began: int, ended: int) -> bool:
        return self.worker in (worker, EVERYBODY) and self.began <= ended and began <= self.ended
