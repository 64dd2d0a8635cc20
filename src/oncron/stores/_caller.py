"""Connections that callers bring: down to the driver's own, whatever wraps it; and what a run's end inside a
transaction may answer. Neither SQLAlchemy nor Django is imported: their objects are known by their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncron._model import FinishResult, FinishStatus, Outcome
from oncron.errors import DefinitionError, LeaseLost

_SESSIONS = ("Session", "scoped_session")
_ASYNC_SESSIONS = ("AsyncSession", "async_scoped_session")


def unwrapped(connection: Any) -> Any:
    """The driver's connection under SQLAlchemy's Connection or Session, or Django's `connection`; anything else
    as it is. Raises DefinitionError for one that is in no transaction, or that has to be awaited."""
    if is_async(connection):
        raise DefinitionError(
            f"{kind_of(connection)} has to be awaited: write `await task.options(connection=...).enqueue(...)`, "
            "or `async with ctx.transaction(connection=...)`"
        )
    if _is_django(connection):
        connection.ensure_connection()
        return connection.connection
    if _is_sqlalchemy(connection, _SESSIONS):
        connection = connection.connection()  # begins the session's transaction, as its every use does
    if _is_sqlalchemy(connection, ("Connection",)):
        _refuse_outside(connection)
        return connection.connection.driver_connection
    return getattr(connection, "driver_connection", connection)


async def unwrapped_async(connection: Any) -> Any:
    """The same where AsyncConnection and AsyncSession of SQLAlchemy are welcome too."""
    if _is_sqlalchemy(connection, _ASYNC_SESSIONS):
        connection = await connection.connection()
    if _is_sqlalchemy(connection, ("AsyncConnection",)):
        _refuse_outside(connection)
        return (await connection.get_raw_connection()).driver_connection
    return unwrapped(connection)


def is_async(connection: Any) -> bool:
    """Whether it is one of SQLAlchemy's that are awaited."""
    return _is_sqlalchemy(connection, (*_ASYNC_SESSIONS, "AsyncConnection"))


def openness(connection: Any, of_driver: Callable[[Any], bool]) -> Callable[[], bool]:
    """A question that any thread may ask, without I/O: is the connection's transaction still open? What a
    wrapper does not know is asked of the driver's connection, which is taken now."""
    if is_async(connection) or _is_sqlalchemy(connection, (*_SESSIONS, "Connection")):
        return lambda: bool(connection.in_transaction())
    line = unwrapped(connection)
    return lambda: of_driver(line)


def recorded(result: FinishResult, outcome: Outcome) -> FinishResult:
    """The result, if it is this transaction that ends the run. Raises LeaseLost otherwise: what the transaction
    has written must not be committed then."""
    if result.status is FinishStatus.RECORDED:
        return result
    if result.status is FinishStatus.REPEATED:
        raise LeaseLost(
            f"run {outcome.run_id} has ended already ({result.state.value}); this transaction is rolled back"
        )
    raise LeaseLost(
        f"run {outcome.run_id} is no longer yours: its lease ran out and another worker may have taken it over; "
        "this transaction is rolled back"
    )


def refuse_no_transaction(begin: str) -> DefinitionError:
    """Of a connection that would commit each statement by itself."""
    return DefinitionError(
        f"no transaction is open on this connection, which is in autocommit: begin one first ({begin}), "
        "or leave connection= out"
    )


def _refuse_outside(connection: Any) -> None:
    if not connection.in_transaction():
        raise refuse_no_transaction("`with engine.begin() as connection:` or `connection.begin()`")


def is_of(thing: Any, package: str, names: tuple[str, ...]) -> bool:
    """Whether its class is, or inherits from, one of that name in the package, which need not be installed."""
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] == package for kind in type(thing).__mro__)


def _is_sqlalchemy(connection: Any, names: tuple[str, ...]) -> bool:
    return is_of(connection, "sqlalchemy", names)


def _is_django(connection: Any) -> bool:
    return hasattr(connection, "ensure_connection") and hasattr(connection, "in_atomic_block")


def kind_of(connection: Any) -> str:
    """Its class, for messages."""
    kind = cast("type[object]", type(connection))
    return f"{kind.__module__}.{kind.__qualname__}"
