-- Runs once, with the search path on the namespace's own schema. Instants and durations are
-- bigint microseconds; JSON travels as text (jsonb refuses \u0000); ids are uuid or 64 bits wide.

create table meta (
    one boolean primary key default true check (one),
    major integer not null,
    minor integer not null,
    functions text not null default '',
    -- Raised by every change of a schedule's definition or status: the idle poll reads it.
    version bigint not null default 0
);

-- What a schedule is. Apart from `cursors`, because every firing writes a new version of that row.
create table schedules (
    name text collate "C" primary key,
    definition text not null,
    task text not null,
    args text not null,
    queue text not null,
    priority bigint not null,
    retries bigint not null,
    retry_delay bigint not null,
    timeout bigint,
    overlap text not null,
    unique_key text,
    run_limit bigint,
    created_at bigint not null,
    changed_at bigint not null,
    note text not null default '',
    -- What the definition is, in short, and what it was before its newest change.
    digest text not null default '',
    previous text not null default ''
);

-- How far a schedule's ticks are settled. This row is the schedule's lock: whoever judges its
-- place updates or locks it first and judges in the next statement (G10). Pages keep room for the new
-- versions that a claim's last token makes beside the old ones.
create table cursors (
    name text collate "C" primary key,
    status text not null,
    revision bigint not null,
    cursor bigint not null,
    next_at bigint,
    last_token bigint not null default 0,
    created_count bigint not null default 0,
    run_limit bigint,
    -- Of the newest firing, so that its repetition is known again (G7). A null result: all became runs.
    fire_id text,
    fire_result text
) with (fillfactor = 70);
-- Partial, so that no look-up by name can take it: with an empty table it seems as good as the key.
create index cursors_due on cursors (next_at, name) include (revision, cursor) where next_at is not null;

create table runs (
    id uuid primary key,
    task text collate "C" not null,
    state text collate "C" not null default 'pending',
    schedule text collate "C",
    tick bigint,
    args text not null default '{}',
    queue text collate "C" not null default 'default',
    priority bigint not null default 0,
    due_at bigint not null,
    created_at bigint not null,
    started_at bigint,
    ended_at bigint,
    attempt bigint not null default 0,
    given_back bigint not null default 0,
    releases bigint not null default 0,
    retries bigint not null,
    retry_delay bigint not null,
    timeout bigint,
    worker text collate "C",
    token bigint not null default 0,
    outcome text,
    claim_id text,
    opening bigint not null default 1,
    serial boolean not null default false,
    parked boolean not null default false,
    cancel_requested boolean not null default false,
    is_catchup boolean not null default false,
    missed_count bigint not null default 0,
    "unique" text collate "C",
    backfill text,
    result text,
    error text,
    reason text,
    progress text,
    checkpoint text,
    -- Where a parked run stands in its schedule's line: runs that run (a changed policy may leave
    -- several) come first, then those that have started, then by position.
    line bigint generated always as (
        case when parked then coalesce(tick, created_at)
            - case when state = 'running' then 4000000000000000000 when attempt > 0 then 2000000000000000000 else 0 end
        end) stored
);

-- Every step of a run's life writes a new version of its row into every index that holds it, and that
-- is most of what the step costs. So each index holds one stage of life: a run is in four at most.
--
-- Lanes: the ready runs of one task, queue and priority, in claim order. The claim merges the lanes that
-- it may take from. So future runs, or another service's, never stand in front of those that are wanted,
-- and the same index answers what will be due next.
create index runs_ready on runs (task, queue, priority, due_at, id) where state = 'pending' and not parked;
create index runs_held on runs (worker) where state = 'running';
create index runs_head on runs (schedule) where serial and not parked and state in ('pending', 'running');
create index runs_line on runs (schedule, line) where parked;
create unique index runs_unique on runs ("unique") where "unique" is not null and state in ('pending', 'running');
-- For listing and for pruning. Open runs are listed from the indexes of their stage.
create index runs_ended on runs (created_at, id) include (ended_at, state) where ended_at is not null;

create table gaps (
    id bigint generated always as identity primary key,
    schedule text collate "C" not null,
    first bigint not null,
    last bigint not null,
    count bigint not null,
    reason text not null,
    at_least boolean not null default false,
    detail text not null default '',
    created_at bigint not null
);
create index gaps_newest on gaps (schedule, id);
create index gaps_old on gaps (greatest(last, created_at));

-- One lease a worker: a heartbeat is one small write, whatever it holds.
create table workers (
    id text collate "C" primary key,
    lease_until bigint not null,
    has_left boolean not null default false,
    record text not null
) with (fillfactor = 50);

-- Sets of schedules that replicas declare in code ([name]), and when one last said that it does.
create table sets (
    id text collate "C" primary key,
    names jsonb not null,
    noted_at bigint not null
);

-- A row per task with max_running: the lock under which its claims are counted.
create table tasks (
    name text collate "C" primary key
);

-- Every tick and every run writes new row versions: vacuum by the thousand, not by the fifth of the table.
alter table cursors set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table runs set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1);
alter table workers set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
