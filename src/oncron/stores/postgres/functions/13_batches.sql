-- Batches: runs that belong together. What they count is read from the runs, so nothing is counted twice. A batch's
-- row is its lock: whoever settles it has it alone, whoever adds to it shares it. Everybody takes locks in this order:
-- schedules, batches (each by name), runs, keys, workers.

-- open_batch: writes p_batch (a NewBatch) unless its id is on record. Returns the BatchRecord; null if its parent does
-- not exist or is complete.
create or replace function open_batch(p_batch jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_id text := p_batch->>'id';
    v_parent text := p_batch->>'parent';
begin
    if v_parent is not null and not exists (select from batches where id = v_id)
        and cardinality(lock_open_batches(array[v_parent])) = 0 then
        return null;
    end if;
    insert into batches (id, parent, data, created_at, on_complete, on_success, on_death)
    values (v_id, v_parent, p_batch->>'data', store_now(p_now), nullif(p_batch->'on_complete', 'null'),
        nullif(p_batch->'on_success', 'null'), nullif(p_batch->'on_death', 'null'))
    on conflict (id) do nothing;
    return batch_record(v_id);
end $$;

-- close_batch: nothing more comes from outside; settles it. Returns the BatchRecord, or null if there is none.
create or replace function close_batch(p_id text, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
begin
    perform lock_schedules(called_back(array[p_id], 'schedule'));
    update batches set closed = true where id = p_id and not closed;
    if cardinality(lock_to_settle(array[p_id])) > 0 then
        perform settle_batch(p_id, v_now);
    end if;
    return batch_record(p_id);
end $$;

-- invalidate_batch: its runs need not do their work. Returns the BatchRecord, or null if there is none.
create or replace function invalidate_batch(p_id text)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    update batches set invalid = true where id = p_id and not invalid;
    return batch_record(p_id);
end $$;

-- delete_batch: forgets a batch, and settles the one that it is in. Returns whether there was one. Raises
-- lock_not_available where somebody's transaction adds to it for long.
create or replace function delete_batch(p_id text, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_parent text;
begin
    for i in 1 .. 20 loop
        if not exists (select from batches where id = p_id) then
            return 'false';
        end if;
        exit when cardinality(lock_to_settle(array[p_id])) > 0;
        if i = 20 then
            raise lock_not_available using message = format('batch %s is being added to', p_id);
        end if;
    end loop;
    delete from batches where id = p_id returning parent into v_parent;
    if not found then
        return 'false';
    end if;
    perform settle_batch(v_parent, v_now);
    return 'true';
end $$;

-- settle_batches: looks at these, or (null) at all that may have something to be settled, by id after p_after.
-- Returns [BatchRecord]. Those of which nothing is to be said yet are not locked; one to which somebody's transaction
-- adds for longer than a moment is left as it is, for the next look.
create or replace function settle_batches(p_ids jsonb, p_after text, p_limit bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_ids text[];
    v_ripe text[];
    v_id text;
begin
    if jsonb_typeof(p_ids) = 'array' then
        v_ids := array(
            select f.id from unnest(array(select distinct jsonb_array_elements_text(p_ids))) as i(id)
            cross join lateral (select b.id from batches b where b.id = any(array[i.id]) offset 0) f
            where f.id > p_after order by f.id limit p_limit);
    else
        v_ids := array(
            select b.id from batches b
            where b.succeeded_at is null and (b.completed_at is null or b.reopened) and b.id > p_after
            order by b.id limit p_limit);
    end if;
    v_ripe := array(select id from unnest(v_ids) as u(id) where is_ripe(id) order by id);
    if cardinality(v_ripe) > 0 then
        foreach v_id in array lock_to_settle(v_ripe) loop
            perform settle_batch(v_id, v_now);
        end loop;
    end if;
    return batch_records(v_ids);
end $$;

-- Whether settling would write anything, as it looks without a lock.
create or replace function is_ripe(p_id text) returns boolean
language plpgsql volatile as $$
declare
    s record := state_of_batch(p_id);
begin
    return s.row_id is not null and (s.dies or s.quiet and (s.completes or s.succeeds or s.reopened));
end $$;

-- What settling finds: all by one snapshot.
create or replace function state_of_batch(
    p_id text, out row_id text, out dies boolean, out quiet boolean, out completes boolean, out succeeds boolean,
    out reopened boolean)
language plpgsql volatile as $$
begin
    select b.id,
        b.died_at is null and has_runs(b.id, '{failed,lost}'),
        b.closed and not has_runs(b.id, '{pending,running}')
            and not exists (select from batches c where c.parent = b.id and c.completed_at is null),
        b.completed_at is null,
        not has_runs(b.id, '{failed,lost,cancelled}')
            and not exists (select from batches c where c.parent = b.id and c.succeeded_at is null),
        b.reopened
    into row_id, dies, quiet, completes, succeeds, reopened
    from batches b where b.id = p_id and b.succeeded_at is null;
end $$;

-- Whether the batch has a run in one of these states, by the snapshot of whoever asks (so it is stable). One state
-- after the other: each is one look into the index, however large the batch.
create or replace function has_runs(p_batch text, p_states text[]) returns boolean
language plpgsql stable as $$
declare
    v_state text;
begin
    foreach v_state in array p_states loop
        if exists (select from runs where batch = p_batch and state = v_state) then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Sets what can be set of a locked batch, each with its callback, so once; then of its parent, if it moved.
create or replace function settle_batch(p_id text, p_now bigint) returns void
language plpgsql volatile as $$
declare
    v_id text := p_id;
    b batches;
    s record;
begin
    while v_id is not null loop
        select * into b from batches where id = v_id;
        s := state_of_batch(v_id);
        exit when s.row_id is null;
        if s.dies then
            perform call_back(b.on_death, p_now);
        end if;
        if s.quiet and s.completes then
            perform call_back(b.on_complete, p_now);
        end if;
        if s.quiet and s.succeeds then
            perform call_back(b.on_success, p_now);
        end if;
        if s.dies or s.quiet and (s.completes or s.succeeds or s.reopened) then
            update batches k
            set died_at = case when s.dies then p_now else k.died_at end,
                completed_at = case when s.quiet and s.completes then p_now else k.completed_at end,
                succeeded_at = case when s.quiet and s.succeeds then p_now end,
                reopened = k.reopened and not s.quiet
            where k.id = v_id;
        end if;
        exit when not (s.quiet and (s.completes or s.succeeds));
        v_id := b.parent;
    end loop;
end $$;

-- Enqueues a batch's callback; one that names a schedule or a batch that is not there is dropped.
create or replace function call_back(p_run jsonb, p_now bigint) returns void
language plpgsql volatile as $$
begin
    if p_run is null
        or p_run->>'schedule' is not null and not exists (select from cursors where name = p_run->>'schedule')
        or p_run->>'batch' is not null
            and not exists (select from batches where id = p_run->>'batch' and completed_at is null) then
        return;
    end if;
    perform enqueue_runs(jsonb_build_array(p_run), p_now);
end $$;

-- Locks all that settling these may write: the schedules and the batches that their callbacks name, they themselves
-- and those that they are in. Returns those of which all was had, by id.
create or replace function lock_to_settle(p_ids text[]) returns text[]
language plpgsql volatile as $$
declare
    v_roots text[];
    v_chains text[];
    v_wanted text[];
    v_locked text[];
    v_missed text[];
begin
    with recursive chain(root, id, parent) as (
        select b.id, b.id, b.parent from batches b where b.id = any(p_ids)
        union
        select c.root, b.id, b.parent from chain c join batches b on b.id = any(array[c.parent])
    )
    select coalesce(array_agg(root), '{}'), coalesce(array_agg(id), '{}') into v_roots, v_chains from chain;
    perform lock_schedules(called_back(v_chains, 'schedule'));
    v_wanted := v_chains || called_back(v_chains, 'batch');
    v_wanted := array(select b.id from batches b where b.id = any(v_wanted));
    -- Who settles or adds holds a batch for one step, so it is worth asking again; but nobody waits behind us while
    -- we wait for somebody's long transaction.
    for i in 1 .. 20 loop
        v_locked := array(
            select b.id from batches b where b.id = any(v_wanted) order by b.id for no key update skip locked);
        exit when cardinality(v_locked) = cardinality(v_wanted);
        perform pg_sleep(0.005);
    end loop;
    v_missed := array(select n from unnest(v_wanted) as n where n <> all(v_locked));
    return array(
        select c.root from unnest(v_roots, v_chains) as c(root, id) group by c.root
        having not (v_missed && (array_agg(c.id) || called_back(array_agg(c.id), 'batch')))
        order by c.root);
end $$;

-- The schedules, or the batches, that the callbacks of these batches name.
create or replace function called_back(p_ids text[], p_what text) returns text[]
language plpgsql volatile as $$
begin
    return array(
        select distinct n.run->>p_what
        from batches b cross join lateral unnest(array[b.on_complete, b.on_success, b.on_death]) as n(run)
        where b.id = any(p_ids) and n.run->>p_what is not null);
end $$;

-- Of these batches, those that take more, locked against being settled until the runs are written.
create or replace function lock_open_batches(p_ids text[]) returns text[]
language plpgsql volatile as $$
begin
    if cardinality(p_ids) = 0 then
        return p_ids;
    end if;
    return array(
        select o.id from (select id, completed_at from batches where id = any(p_ids) order by id for share) o
        where o.completed_at is null);
end $$;

-- p_batches is {id: [run id]}: locks them, and returns one that takes no more, unless all its runs are on record; or
-- null.
create or replace function closed_batch(p_batches jsonb) returns text
language plpgsql volatile as $$
declare
    v_open text[] := lock_open_batches(array(select jsonb_object_keys(p_batches)));
begin
    return (
        select b.key from jsonb_each(p_batches) b
        where b.key <> all(v_open) and exists (
            select from jsonb_array_elements_text(b.value) i
            where not exists (select from runs r where r.id = i::uuid))
        order by b.key limit 1);
end $$;

-- A batch's row with its runs counted, or null.
create or replace function batch_record(p_id text) returns json
language plpgsql volatile as $$
begin
    return (
        select to_jsonb(b) || jsonb_build_object(
            'runs', (
                select coalesce(jsonb_object_agg(c.state, c.n), '{}')
                from (select r.state, count(*) as n from runs r where r.batch = b.id group by r.state) c),
            'children', (select count(*) from batches c where c.parent = b.id and c.completed_at is null))
        from batches b where b.id = p_id);
end $$;

-- Those of these batches that are still there, in this order.
create or replace function batch_records(p_ids text[]) returns json
language plpgsql volatile as $$
begin
    return (
        select coalesce(json_agg(r.record order by u.place) filter (where r.record is not null), '[]')
        from unnest(p_ids) with ordinality as u(id, place)
        cross join lateral (select batch_record(u.id) as record offset 0) r);
end $$;

create or replace function get_batch(p_id text)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    return batch_record(p_id);
end $$;

-- list_batches: [BatchRecord], newest first, older than p_before; p_dead: those in which a run failed or was lost.
create or replace function list_batches(p_dead boolean, p_before text, p_limit bigint)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_created_at bigint := 9223372036854775807;
    v_id text := '';
    v_ids text[];
begin
    if p_before is not null then
        select created_at, id into v_created_at, v_id from batches where id = p_before;
        if not found then
            return '[]';
        end if;
    end if;
    if p_dead then
        v_ids := array(
            select b.id from batches b where b.died_at is not null and (b.created_at, b.id) < (v_created_at, v_id)
            order by b.created_at desc, b.id desc limit p_limit);
    else
        v_ids := array(
            select b.id from batches b where b.created_at >= 0 and (b.created_at, b.id) < (v_created_at, v_id)
            order by b.created_at desc, b.id desc limit p_limit);
    end if;
    return batch_records(v_ids);
end $$;
