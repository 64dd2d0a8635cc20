"""The loops of a replica: scheduler, worker, keeper, janitor.

They run on an event loop of their own in a daemon thread of their own, so that a task that
blocks the user's loop stops neither ticks nor leases. They know the store by its contract
only (`_store.py`) and the user's tasks by `TaskSpec` only; `_app.py` brings both together.
"""
