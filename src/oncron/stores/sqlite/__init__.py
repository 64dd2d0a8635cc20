"""The store in an SQLite file: for the processes of one machine, without a server.

Read it in this order: `migrations/`, `queries.sql`, `store`, and then the steps: `_declare`, `_fire`,
`_claim`, `_workers`, `_enqueue`, `_endings`, `_reads`; `groups.sql` and `_groups` with `_queues`, `_locks`,
`_limiters`, `_batches`. Below them lie the thread with the connection (`_lane`), the transaction (`_step`)
and the runs it works on (`_sheet`).
"""

from oncron.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
