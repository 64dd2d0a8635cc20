"""The ids of the run in the records that its task logs, whatever logger it uses."""

from __future__ import annotations

import logging

from oncron._context import current_run, in_run


class RunIds(logging.Filter):
    """Add to a handler: records made in a task get `run`, `task`, `schedule`, `tick` and `attempt`, unless they carry
    them already (those of `ctx.log` do). No record is dropped."""

    def filter(self, record: logging.LogRecord) -> bool:
        if in_run():
            run = current_run()
            ids = {
                "run": run.run_id,
                "task": run.task,
                "schedule": run.schedule,
                "tick": None if run.tick is None else run.tick.isoformat(),
                "attempt": run.attempt,
            }
            for name, value in ids.items():
                if not hasattr(record, name):
                    setattr(record, name, value)
        return True
