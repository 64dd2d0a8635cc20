"""Who is first for a schedule: rendezvous hashing of 64 shards over the live replicas.

Every replica computes the same answer from the same list of workers, without asking; when
one joins or leaves, only its own shards move (Thaler and Ravishankar, 1998, "Using
name-based mappings to increase hit rates").
"""

from __future__ import annotations

import hashlib

SHARDS = 64


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def shard_of(name: str) -> int:
    return _hash(name) % SHARDS


class Shards:
    """The shards in which this worker is first. Alone until `members` is told otherwise."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.own_hash = _hash(me)
        self._members: frozenset[str] = frozenset((me,))
        self._mine = frozenset(range(SHARDS))

    def meet(self, members: frozenset[str]) -> bool:
        """The live replicas, this one included in any case. Whether anything changed."""
        members |= {self.me}
        if members == self._members:
            return False
        self._members = members
        self._mine = frozenset(
            shard
            for shard in range(SHARDS)
            if max(members, key=lambda member: (_hash(f"{member}\0{shard}"), member)) == self.me
        )
        return True

    def is_mine(self, name: str) -> bool:
        return shard_of(name) in self._mine
