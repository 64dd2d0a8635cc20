-- What a run is part of, and who else has to agree to it.
alter table {ns}_runs add column guard text;
alter table {ns}_runs add column batch text;
alter table {ns}_schedules add column guard text;

create index {ns}_runs_batch on {ns}_runs (batch, state) where batch is not null;

-- Who holds what, now with the queue: queue_limits are counted in the index alone.
drop index {ns}_runs_held;
create index {ns}_runs_held on {ns}_runs (worker, task, queue, state) where state = 'running';

-- What may be pruned, now with the batch: runs of one on record are passed over in the index alone.
drop index {ns}_runs_ended;
create index {ns}_runs_ended on {ns}_runs (state, ended_at, batch) where ended_at is not null;

-- What a worker takes, as JSON; null queues are every queue.
alter table {ns}_workers add column tasks text not null default '[]';
alter table {ns}_workers add column queues text;

-- Queues that were paused once.
create table {ns}_queues (
    name text primary key,
    paused integer not null,
    note text not null,
    changed_at integer not null
) without rowid;

-- The last token of each lock's name, and who holds it now or did until its lease expired.
create table {ns}_locks (
    name text primary key,
    last_token integer not null
) without rowid;

create index {ns}_locks_idle on {ns}_locks (last_token);

create table {ns}_holders (
    name text not null,
    token integer not null,
    owner text not null,
    since integer not null,
    lease_until integer not null,
    primary key (name, token)
) without rowid;

-- Limiters by the rule that was asked by last, and what they granted.
create table {ns}_limiters (
    name text primary key,
    kind text not null,
    amount integer not null,
    per integer not null,
    empty_at integer not null default 0
) without rowid;

create table {ns}_takes (
    limiter text not null,
    nonce text not null,
    at integer not null,
    cost integer not null,
    until integer not null,
    empty_at integer not null,
    primary key (limiter, nonce)
) without rowid;

create index {ns}_takes_at on {ns}_takes (limiter, at, cost);
create index {ns}_takes_until on {ns}_takes (limiter, until);

-- Batches; the callbacks are NewRuns as JSON. What they count is read from the runs.
create table {ns}_batches (
    id text primary key,
    parent text,
    data text not null,
    created_at integer not null,
    closed integer not null default 0,
    invalid integer not null default 0,
    died_at integer,
    completed_at integer,
    succeeded_at integer,
    -- Whether a run was opened again since it completed.
    reopened integer not null default 0,
    on_complete text,
    on_success text,
    on_death text
) without rowid;

create index {ns}_batches_created on {ns}_batches (created_at, id);
create index {ns}_batches_parent on {ns}_batches (parent, completed_at) where parent is not null;
create index {ns}_batches_completed on {ns}_batches (completed_at) where completed_at is not null;
create index {ns}_batches_unsettled on {ns}_batches (id)
where succeeded_at is null and (completed_at is null or reopened = 1);
