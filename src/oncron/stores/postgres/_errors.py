"""PostgreSQL's errors in oncron's words."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from oncron.errors import SchemaOutdated, StoreError, StoreUnavailable, StoreUnsafe

REPEATABLE = (pg.DeadlockDetected, pg.SerializationFailure)
"""Nothing was written, and the same call may succeed at once."""

_MISSING = (pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn, pg.InvalidSchemaName)
_REFUSED = (pg.InvalidPassword, pg.InvalidAuthorizationSpecification, pg.InvalidCatalogName)
_UNFIT = (psycopg.DataError, psycopg.IntegrityError, pg.ProgramLimitExceeded)
"""Classes 22, 23 and 54. Repeating it changes nothing, unless somebody else came first (`_OVERTAKEN`)."""
_OVERTAKEN = (pg.UniqueViolation, pg.ExclusionViolation)
_MOVED = (pg.ReadOnlySqlTransaction, pg.CannotConnectNow, pg.AdminShutdown, pg.CrashShutdown)


def translated(error: psycopg.Error, where: str) -> StoreError:
    """The error that crosses the border: which server, what it said, what to do."""
    said = _said(error)
    if isinstance(error, _MISSING):
        return SchemaOutdated(f"{where}: {said}; run `oncron migrate`")
    if isinstance(error, pg.InsufficientPrivilege):
        return StoreUnavailable(f"{where}: {said}; grant this user the rights on oncron's schema, or use its owner")
    if isinstance(error, _UNFIT) and not isinstance(error, _OVERTAKEN):
        return StoreError(f"{where}: {said}{_state(error)}; it is refused as it is, and repeating it changes nothing")
    if isinstance(error, pg.LockNotAvailable):
        return StoreUnavailable(
            f"{where}: {said}; somebody's transaction holds a row of oncron's tables for long: end that transaction"
        )
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return StoreUnavailable(
            f"{where}: {said}; it is a standby now, or writing is switched off: the next call connects anew "
            "(several hosts and target_session_attrs=read-write in the URL find the primary)"
        )
    if isinstance(error, pg.QueryCanceled):
        return StoreUnavailable(f"{where}: {said}; the server is overloaded or a lock is held for too long: repeat")
    if isinstance(error, _MOVED):
        return StoreUnavailable(f"{where}: {said}; repeat on a new connection")
    if isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(f"{where}: {said}")
    return StoreUnavailable(f"{where}: {said} ({type(error).__name__}{_state(error)})")


def not_reached(error: BaseException, where: str) -> StoreError:
    """Of a connection that did not come about."""
    said = _said(error)
    if isinstance(error, _REFUSED) or "authentication failed" in said or "does not exist" in said:
        return StoreUnavailable(f"{where} refused the connection: {said}; check user, password and database in the URL")
    return StoreUnavailable(
        f"{where} cannot be reached: {said}; check that PostgreSQL runs there and that host and port are right"
    )


def timed_out(where: str, seconds: float) -> StoreError:
    return StoreUnavailable(
        f"{where} did not answer within {seconds:g} s; whether the step was done is unknown: "
        "repeat it with the same ids"
    )


def too_busy(where: str) -> StoreError:
    return StoreUnavailable(f"{where}: every connection of this replica's pool was busy until the deadline; repeat")


def not_allowed(error: psycopg.Error, where: str, what: str) -> StoreError:
    """Of a migration that lacks a right."""
    return StoreUnsafe(
        f"{where}: this user may not {what} ({_said(error)}); run `oncron migrate` as the database's owner, "
        "or grant this user CREATE on the database"
    )


def _said(error: BaseException) -> str:
    """The server's message in one line."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    lines = [line.strip() for line in (primary or str(error) or type(error).__name__).splitlines()]
    return " ".join(line for line in lines if line)


def _state(error: psycopg.Error) -> str:
    return f", {error.sqlstate}" if error.sqlstate else ""
