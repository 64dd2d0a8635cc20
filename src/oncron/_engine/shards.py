"""Who is first for a schedule: rendezvous hashing of 64 shards over the live replicas.

Every replica computes the same answer from the same list of workers, without asking; when
one joins or leaves, only its own shards move (Thaler and Ravishankar, 1998, "Using
name-based mappings to increase hit rates").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

SHARDS = 64
_ABSENCES = 3


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def shard_of(name: str) -> int:
    return _hash(name) % SHARDS


@lru_cache(maxsize=512)
def _weights(member: str) -> tuple[int, ...]:
    """The member's weight in each shard; the heaviest is first."""
    return tuple(_hash(f"{member}\0{shard}") for shard in range(SHARDS))


class Shards:
    """The shards in which this worker is first. Alone until `members` is told otherwise.

    A member that did not come to its ticks three times running is *suspect* for a while: it is
    passed over, so that a dead replica does not make every tick late until its lease is over."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.own_hash = _hash(me)
        self._members: frozenset[str] = frozenset((me,))
        self._absences: dict[str, int] = {}
        self._suspects: dict[str, int] = {}
        self._drawn = self._members
        self._firsts: list[str] = [me] * SHARDS

    def meet(self, members: frozenset[str], now: int) -> bool:
        """The live replicas, this one included in any case. Whether the order changed."""
        self._members = members | {self.me}
        self._suspects = {member: until for member, until in self._suspects.items() if until > now}
        return self._draw()

    def came(self, name: str) -> None:
        """The schedule was fired by another replica in time."""
        self._absences.pop(self._firsts[shard_of(name)], None)

    def absent(self, names: Iterable[str], until: int) -> bool:
        """This worker had to fire these, since their first replicas did not come. Whether the order changed."""
        for first in {self._firsts[shard_of(name)] for name in names} - {self.me}:
            self._absences[first] = self._absences.get(first, 0) + 1
            if self._absences[first] >= _ABSENCES:
                del self._absences[first]
                self._suspects[first] = until
        return self._draw()

    def is_mine(self, name: str) -> bool:
        return self._firsts[shard_of(name)] == self.me

    def _draw(self) -> bool:
        members = self._members - self._suspects.keys()
        if members == self._drawn:
            return False
        self._drawn = members
        firsts = [max(members, key=lambda member: (_weights(member)[shard], member)) for shard in range(SHARDS)]
        changed = firsts != self._firsts
        self._firsts = firsts
        return changed
