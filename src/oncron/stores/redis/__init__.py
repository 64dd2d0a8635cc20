"""The store on Redis (6.2 or newer) and Valkey (7.2 or newer). Read `store` first, then `lua/`: one script a
method, which is one step, with what they share in `lua/shared/`."""

from __future__ import annotations

from oncron.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
