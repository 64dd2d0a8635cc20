-- The first schema. Instants and durations are integers in microseconds, JSON is text.

-- One row: whose file this is and how far its clock has gone.
create table {ns}_meta (
    id integer primary key check (id = 1),
    schema_major integer not null,
    schema_minor integer not null,
    now_at integer not null default 0,
    boot_id text not null default '',
    version integer not null default 0
);

-- What a schedule is. Written by declare only; fire copies task, args and options from here.
create table {ns}_schedules (
    name text primary key,
    definition text not null,
    task text not null,
    args text not null,
    queue text not null,
    priority integer not null,
    retries integer not null,
    retry_delay integer not null,
    timeout integer,
    overlap text not null,
    run_limit integer,
    unique_key text,
    created_at integer not null,
    changed_at integer not null,
    note text not null,
    -- Digest of the definition before its newest change.
    previous text not null default ''
) without rowid;

-- How far each schedule is settled: narrow, because every firing rewrites it.
create table {ns}_cursors (
    name text primary key,
    revision integer not null,
    status text not null,
    cursor integer not null,
    next_at integer,
    last_token integer not null default 0,
    created_count integer not null default 0,
    fire_id text,
    fire_result text
) without rowid;

create index {ns}_cursors_due on {ns}_cursors (next_at, name) where next_at is not null;

-- A run is open exactly while it has no ended_at. seq is at least created_at and grows with
-- every insert, so that "newest first" and "since" need no index of their own.
create table {ns}_runs (
    seq integer primary key,
    id text not null unique,
    task text not null,
    state text not null default 'pending',
    schedule text,
    tick integer,
    args text not null default '{}',
    queue text not null,
    priority integer not null,
    due_at integer not null,
    created_at integer not null,
    started_at integer,
    ended_at integer,
    attempt integer not null default 0,
    given_back integer not null default 0,
    releases integer not null default 0,
    retries integer not null,
    retry_delay integer not null,
    timeout integer,
    worker text,
    token integer not null default 0,
    outcome text,
    claim_id text,
    opening integer not null default 1,
    serial integer not null default 0,
    parked integer not null default 0,
    cancel_requested integer not null default 0,
    is_catchup integer not null default 0,
    missed_count integer not null default 0,
    unique_key text,
    backfill text,
    result text,
    error text,
    reason text,
    progress text,
    checkpoint text,
    check ((ended_at is null) = (state in ('pending', 'running')))
);

-- What claim may take: it merges the few (queue, priority) there are, each in the order of
-- due_at, so that what is not due yet is never walked over, however urgent.
create index {ns}_runs_claim on {ns}_runs (queue, priority, due_at, task)
where state = 'pending' and parked = 0 and cancel_requested = 0;

-- Who holds what: heartbeats, reaping, max_running.
create index {ns}_runs_held on {ns}_runs (worker, task, state) where state = 'running';

-- Who has the place of a schedule; and a schedule's listing, open and ended apart, so that
-- firing pays for one of the two.
create index {ns}_runs_open on {ns}_runs (schedule, ended_at) where ended_at is null;
create index {ns}_runs_past on {ns}_runs (schedule) where ended_at is not null;

-- One open run a key.
create unique index {ns}_runs_unique on {ns}_runs (unique_key) where unique_key is not null and ended_at is null;

-- What may be pruned, and how many ended how.
create index {ns}_runs_ended on {ns}_runs (state, ended_at) where ended_at is not null;

create table {ns}_gaps (
    seq integer primary key,
    schedule text not null,
    first integer not null,
    last integer not null,
    count integer not null,
    reason text not null,
    at_least integer not null default 0,
    detail text not null default '',
    created_at integer not null
);

create index {ns}_gaps_schedule on {ns}_gaps (schedule);
create index {ns}_gaps_created on {ns}_gaps (created_at);

-- A worker that left is kept, hidden, while its old lease still covers runs.
create table {ns}_workers (
    id text primary key,
    host text not null default '',
    pid integer not null default 0,
    started_at integer not null default 0,
    lease_until integer not null,
    release integer,
    tzdata text not null default '',
    version text not null default '',
    roles text not null default '[]',
    declares text not null default '',
    has_left integer not null default 0
) without rowid;

-- Sets of schedules that replicas declare in code, and when one last said that it does.
create table {ns}_sets (
    id text primary key,
    names text not null,
    noted_at integer not null
) without rowid;
