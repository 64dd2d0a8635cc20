-- Advisory locks of a session, under the number of a name (`job_lock_key`). They are the server's own: no schema
-- is needed, and whoever calls these functions with the same number, in whatever language, is excluded.

-- name: who
-- Which backend answers, and whether its locks are those of a standby, which nobody else meets.
select pg_backend_pid(), pg_is_in_recovery()

-- name: begin
-- The backend of a transaction that stays open.
begin; select pg_backend_pid(), pg_is_in_recovery()

-- name: take
-- Whether this session has the lock now. Never waits.
select pg_try_advisory_lock({key})

-- name: let_go
-- False, with a warning of the server's, if this session did not have it.
select pg_advisory_unlock({key})

-- name: held
-- Whether this very backend still has it.
select exists (
    select from pg_locks
    where locktype = 'advisory' and granted and pid = pg_backend_pid() and objsubid = 1
        and classid::bigint = {high} and objid::bigint = {low}
)
