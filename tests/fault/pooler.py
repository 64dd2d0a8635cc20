"""Replicas behind PgBouncer, and what its other clients do to the sessions that they share."""

from __future__ import annotations

import contextlib
import random

import psycopg

from tests.fault.faults import Fault
from tests.fault.fleet import Fleet
from tests.pgbouncer import PgBouncer

_SETTINGS = (
    "set search_path = pg_catalog; set statement_timeout = '200ms'; set default_transaction_isolation = serializable"
)


def pooled(fleet: Fleet, pgbouncer: PgBouncer, *, listens: bool) -> Fleet:
    """The replicas reach the store through the pooler, and by a direct way for notifications if they listen."""
    for replica in fleet.replicas:
        replica.environment["ONCRON_STORE"] = pgbouncer.url(fleet.url)
        replica.environment["FAULT_LISTEN"] = fleet.url if listens else ""
    return fleet


def restart(pgbouncer: PgBouncer) -> Fault:
    def act(fleet: Fleet, _chance: random.Random) -> None:
        with fleet.disturbing("pooler restarted", echo=2):
            pgbouncer.restart()

    return act


def leave_settings(pgbouncer: PgBouncer) -> Fault:
    """Another service's clients set what they like in every session of the pool, and go: it excuses nothing."""

    def act(fleet: Fleet, _chance: random.Random) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(pgbouncer.size):  # one transaction each, at once: so they meet different sessions
                line = psycopg.connect(pgbouncer.url(fleet.url), prepare_threshold=None)
                stack.callback(line.close)
                line.execute(f"begin; {_SETTINGS}")
                stack.callback(line.commit)

    return act
