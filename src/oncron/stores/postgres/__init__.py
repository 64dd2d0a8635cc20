"""The store on PostgreSQL: `store` calls functions that live in the database (`functions/*.sql`).

Read `store`, then `migrations/0001_tables.sql`, then `functions/03_fire.sql`.
"""

from oncron.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
