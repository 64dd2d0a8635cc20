-- Queues of the fleet, guards, locks, limiters and batches. Only added: releases that know none of it work on.

alter table schedules add column guard text;
alter table runs add column guard text, add column batch text collate "C";
create index runs_batch on runs (batch, state) where batch is not null;
-- Those that an operator may want to see: pruning counts them from the newest.
create index runs_failed on runs (created_at, id) include (batch) where state in ('failed', 'lost');

-- A row for a queue that was paused once or has a limit: the lock under which its claims are counted.
create table queues (
    name text collate "C" primary key,
    paused boolean not null default false,
    note text not null default '',
    changed_at bigint
);
create index queues_paused on queues (name) where paused;

-- One row: the lock under which all claims are counted, where the fleet has a limit.
create table fleet (
    one boolean primary key default true check (one)
);

-- A row per name that was held: its lock, and the last token that it gave.
create table locks (
    name text collate "C" primary key,
    last_token bigint not null default 0
);
create index locks_idle on locks (last_token);
create table holders (
    name text collate "C" not null,
    token bigint not null,
    owner text not null,
    since bigint not null,
    lease_until bigint not null,
    primary key (name, token)
) with (fillfactor = 50);

-- A row per limiter, which is its lock, with the rule that it was asked by last. Buckets: when it is empty;
-- numeric, for a true cost may be any.
create table limiters (
    name text collate "C" primary key,
    kind text not null,
    amount bigint not null,
    per bigint not null,
    empty_at numeric not null default 0
) with (fillfactor = 50);
create index limiters_idle on limiters (empty_at) where empty_at > 0;
create table takes (
    limiter text collate "C" not null,
    nonce text collate "C" not null,
    at bigint not null,
    cost bigint not null,
    until bigint not null,
    empty_at numeric not null,
    primary key (limiter, nonce)
);
create index takes_at on takes (limiter, at) include (cost);
create index takes_until on takes (limiter, until);
create index takes_old on takes (until);

-- The row is the batch's lock: whoever settles it has it alone, whoever adds to it shares it.
create table batches (
    id text collate "C" primary key,
    parent text collate "C",
    data text not null,
    created_at bigint not null,
    closed boolean not null default false,
    invalid boolean not null default false,
    died_at bigint,
    completed_at bigint,
    succeeded_at bigint,
    -- Whether a run of it was opened again since it completed.
    reopened boolean not null default false,
    on_complete jsonb,
    on_success jsonb,
    on_death jsonb
) with (fillfactor = 50);
-- Partial, so that no look-up by id can take it.
create index batches_newest on batches (created_at, id) where created_at >= 0;
create index batches_died on batches (created_at, id) where died_at is not null;
create index batches_unsettled on batches (id) where succeeded_at is null and (completed_at is null or reopened);
create index batches_completed on batches (completed_at) where completed_at is not null;
create index batches_parent on batches (parent) where parent is not null;

alter table takes set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1);
alter table limiters set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
alter table holders set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Made anew with the functions, as they answer more columns.
drop function if exists changes_of(jsonb);
drop function if exists new_runs(jsonb);
