"""APScheduler 3 with its SQLAlchemy job store, shared by all replicas. It has no queue."""

from __future__ import annotations

from _peer import STORE, play
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.blocking import BlockingScheduler


def tick() -> None:
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_jobstore(SQLAlchemyJobStore(url=STORE.replace("postgresql://", "postgresql+psycopg://")))
    scheduler.add_job("_peer:mark", "cron", second="*", id="tick", replace_existing=True, misfire_grace_time=10)
    scheduler.start()


if __name__ == "__main__":
    play(tick=tick)
