"""Redis' errors in oncron's words."""

from __future__ import annotations

import re

from redis import exceptions as rx

from oncron.errors import SchemaOutdated, SchemaTooNew, StoreError, StoreUnavailable, StoreUnsafe

DRIVER = (rx.RedisError, rx.RedisClusterException, OSError)
"""What a call to the driver may raise, besides a timeout of our own."""

MAJOR = 1
"""Raised when an older release must not touch the keys any more. The scripts compare it."""

_SCHEMA = re.compile(r"ONCRONSCHEMA (\w+)")


def translated(error: BaseException, where: str) -> StoreError:
    """The error that crosses the border: which server, what it said, what to do."""
    said = _said(error)
    if (found := _SCHEMA.search(said)) is not None:
        return other_schema(None if found[1] == "none" else int(found[1]), where)
    if isinstance(error, rx.AuthenticationError | rx.AuthorizationError) or "WRONGPASS" in said or "NOAUTH" in said:
        return StoreUnavailable(f"{where} refused the connection: {said}; check user and password in the URL")
    if isinstance(error, rx.NoPermissionError) or "NOPERM" in said:
        return StoreUnsafe(f"{where}: {said}; let this user run scripts and touch the keys of oncron's namespace")
    if isinstance(error, rx.ReadOnlyError) or "READONLY" in said:
        return StoreUnavailable(
            f"{where}: {said}; it is a replica now: name the primary in the URL, or let Sentinel find it "
            "(redis+sentinel://)"
        )
    if isinstance(error, rx.OutOfMemoryError) or "OOM" in said:
        return StoreUnavailable(f"{where}: {said}; nothing was written: raise maxmemory, or keep less history")
    if "NOREPLICAS" in said:
        return StoreUnavailable(f"{where}: {said}; nothing was written: repeat when its replicas are back")
    if "MISCONF" in said:
        return StoreUnavailable(f"{where}: {said}; nothing was written: look at the server's disk")
    if isinstance(error, rx.BusyLoadingError):
        return StoreUnavailable(f"{where} is still loading its data: repeat")
    if isinstance(error, rx.TimeoutError | TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time; whether the step was done is unknown: repeat it with the same ids"
        )
    if isinstance(error, rx.ConnectionError | rx.RedisClusterException | OSError):
        return StoreUnavailable(
            f"{where} cannot be reached: {said}; check that the server runs there and that the URL is right"
        )
    return StoreUnavailable(f"{where}: {said} ({type(error).__name__})")


def other_schema(major: int | None, where: str) -> StoreError:
    """The namespace is not known there, or it is a newer release's."""
    if major is None or major < MAJOR:
        return SchemaOutdated(f"{where}: has no keys of oncron's in this namespace yet; run `oncron migrate`")
    return SchemaTooNew(f"{where}: its keys are of version {major}, this release knows {MAJOR}; upgrade oncron here")


def too_few(acknowledged: int, wanted: int, where: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{where}: {acknowledged} of {wanted} replicas acknowledged the write in time (wait_replicas={wanted}); "
        "whether it outlives a fail-over is unknown: repeat it with the same ids"
    )


def _said(error: BaseException) -> str:
    """The server's message in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else text[:497] + "..."
