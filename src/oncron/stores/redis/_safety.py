"""What `open` looks at: whether the server may be trusted with ticks."""

from __future__ import annotations

import logging
from typing import Any, cast

from oncron.errors import StoreError, StoreUnsafe
from oncron.stores.redis._address import Address
from oncron.stores.redis._link import Link

log = logging.getLogger("oncron.stores.redis")

OLDEST = (6, 2)


async def refuse_unsafe(link: Link, address: Address) -> None:
    """Raises StoreUnsafe; logs one WARNING for what is safe enough but may lose seconds."""
    found = _info(await link.run("probe", b"\x80", None, writes=False))
    where = address.shown
    if found.get("role", "master") != "master":
        raise StoreUnsafe(
            f"{where} is a replica: nothing can be scheduled there; name the primary in the URL, or let Sentinel "
            "find it (redis+sentinel://host:26379/service)"
        )
    version = found.get("redis_version", "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreUnsafe(f"{where} is Redis {version}; oncron needs Redis 6.2 or Valkey 7.2, or newer")
    policy = found.get("maxmemory_policy")
    if policy not in (None, "noeviction"):
        raise StoreUnsafe(
            f"{where} has maxmemory-policy {policy}: it may throw away cursors and runs when its memory is full; set "
            "`CONFIG SET maxmemory-policy noeviction`, or give oncron a server of its own"
        )
    kept = found.get("aof_enabled")
    if kept == "0" and not address.volatile:
        raise StoreUnsafe(
            f"{where} keeps no append-only file: a restart forgets what it acknowledged, and ticks run again; set "
            "`CONFIG SET appendonly yes`, or add ?volatile=true to the URL to accept that"
        )
    if policy is None or kept is None:
        log.warning(
            "store.not_checked: %s does not tell this user whether it evicts keys or keeps an append-only file; see "
            "that it has maxmemory-policy noeviction and appendonly yes", where,
        )  # fmt: skip
    elif not address.volatile and (fsync := await _appendfsync(link, address)) not in (None, "always"):
        log.warning(
            "store.not_durable: %s has appendfsync %s: a power failure may lose its last seconds, and so may a "
            "crash of the server while its disk is slow; ticks of those may run twice", where, fsync,
        )  # fmt: skip


async def _appendfsync(link: Link, address: Address) -> str | None:
    """None where it is not told: CONFIG may be forbidden."""
    if address.kind == "cluster":
        return None
    try:
        said = await link.command("CONFIG", "GET", "appendfsync")
    except StoreError:
        return None
    # The driver makes a mapping of it, or leaves it a flat list, depending on its version.
    values = list(cast("dict[Any, Any]", said).values()) if isinstance(said, dict) else said[1::2]
    return next((value.decode() if isinstance(value, bytes) else str(value) for value in values), None)


def _info(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}
