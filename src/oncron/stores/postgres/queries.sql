-- The messages that the store sends. Each goes to the server as a whole, in one round trip, by the
-- simple protocol: nothing is prepared and no transaction waits for its client, so that a pooler in
-- transaction mode may stand between. {schema} is the quoted namespace.

-- name: step
-- One method of the contract: its function, in a transaction of its own.
begin isolation level read committed;
set local statement_timeout = {timeout};
select {schema}.{function}({arguments});
commit

-- name: step.impatient
-- The same for what many others wait behind: a row that somebody holds for long fails it soon.
begin isolation level read committed;
set local statement_timeout = {timeout};
set local lock_timeout = {patience};
select {schema}.{function}({arguments});
commit

-- name: step.inside
-- The same inside a transaction that the caller began and will commit.
select {schema}.{function}({arguments})

-- name: step.last
-- The same as the last statement before the commit, in a transaction of ours: it waits for no lock for long.
set local statement_timeout = {timeout};
select {schema}.{function}({arguments})

-- name: transaction.begin
-- The server ends the session of a task that is stopped or lost in the middle: its locks go with it.
set local idle_in_transaction_session_timeout = {idle}

-- name: probe
-- What kind of server this is, and which backend: behind a pooler it is not the one that answered at first.
select pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('server_version_num'),
    current_setting('server_encoding'), current_setting('synchronous_commit'), current_setting('fsync'),
    pg_backend_pid()

-- name: now
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- name: notify
-- A commit of its own: a notification inside another transaction serialises commits. No payload.
notify {schema}

-- name: listen
listen {schema}

-- name: alive
select 1

-- name: schema.installed
-- Whether the namespace has a schema, and a store in it.
select to_regnamespace({name}) is not null, to_regclass({name} || '.meta') is not null

-- name: schema.identity
-- Which store the schema belongs to: the same in every connection to its database.
select id::text from {schema}.meta

-- name: schema.version
select major, minor, functions from {schema}.meta

-- name: schema.lock
-- One migration at a time, of all replicas. Held until commit. The key is oncron's own ("oncr") and the name's.
begin isolation level read committed;
set local statement_timeout = {timeout};
select pg_advisory_xact_lock(x'6f6e6372'::int, hashtext({literal}))

-- name: schema.create
create schema if not exists {schema}

-- name: schema.path
set local search_path = {schema}, pg_temp

-- name: schema.record
insert into {schema}.meta (major, minor, functions) values ({major}, {minor}, {functions})
on conflict (one) do update set major = excluded.major, minor = excluded.minor, functions = excluded.functions

-- name: schema.commit
commit
