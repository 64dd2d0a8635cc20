"""Every limit and default, in one table. Durations are microseconds, sizes bytes of UTF-8."""

from __future__ import annotations

from oncron._clock import SECOND

DAY = 24 * 3600 * SECOND

CALL_DEADLINE = 10 * SECOND
"""How long one store call may take before it counts as failed."""
LEASE_FOR = 15 * SECOND
STOP_WITHIN = 30 * SECOND
CONCURRENCY = 10

MISSED_AFTER = 60 * SECOND
"""A tick is missed when the store's clock has passed it by more than this."""
MISSED_LIMIT = 100
PLAN_WALK = 10_000
"""Ticks are counted one by one up to here, then as "at least"."""
MISSED_WITHIN_ONCE = DAY
BACKFILL_TICKS = 100_000
"""Instants that one backfill may cover."""

RETRIES = 3
RETRY_DELAY = 1 * SECOND
RETRY_DELAY_CAP = 3600 * SECOND
RETRY_IN_AT_MOST = 200 * 365 * DAY
"""What `RetryIn` may ask for: past that, instants would no longer fit into a store."""
RELEASES_IN_A_ROW = 10
"""Releases in a row that spend no attempt; each further one does."""

KEEP_FOR = 7 * DAY
KEEP_FAILED_FOR = 30 * DAY

ARGS_BYTES = 256 * 1024
OUTBOX_RUNS = 10_000
OUTBOX_BYTES = 4 * 1024 * 1024
"""What one run may `ctx.enqueue`: it is written in one step, within a store call's time."""
RESULT_BYTES = 64 * 1024
CHECKPOINT_BYTES = 64 * 1024
PROGRESS_BYTES = 1024
ERROR_BYTES = 16 * 1024
LOG_BYTES = 16 * 1024
LOG_LINE_BYTES = 4 * 1024
"""What is kept of what a run says with `ctx.log`, the newest, and of one line."""
EXPRESSION_CHARS = 256
NAME_CHARS = 200

OVERDUE_AFTER = 60 * SECOND
"""An active schedule whose next tick is longer past than this is overdue: nobody fires it."""
DROPPED_AFTER = 60 * SECOND
"""A worker without runs is dropped when its lease ended longer ago than this."""
DORMANT_AFTER = 3600 * SECOND
"""A schedule that no live replica's code has declared for so long goes dormant."""
SKEW_WARNING = 1 * SECOND
POLL_EVERY = 5 * SECOND
"""The idle poll that makes every hint dispensable (G9)."""
SLEEP_AT_MOST = 60 * SECOND
IDLE_HEARTBEAT = 20 * SECOND
SQLITE_TRANSACTION = 1 * SECOND
"""How long a task's `ctx.transaction()` may keep everybody else from writing to an SQLite file."""
STALE_WALL = 60 * SECOND
"""SQLite's stored clock may run ahead of the wall by this much before the store is red."""
