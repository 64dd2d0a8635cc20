-- enqueue: writes runs (G6, G7, G10).
--
-- p_runs   [NewRun]
-- p_named  [name]: the schedules that must exist; or {schedules: [name], batches: {id: [run id]}}, with the batches
--          that must take more for those runs, of which any on record needs none
-- returns  {now, missing} or {now, closed} if a schedule or a batch named there does not: nothing was written; else
--          {now, odd}: EnqueueResults by place, where they are more than the new run itself
create or replace function enqueue(p_runs jsonb, p_named jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_batches jsonb;
    v_named text[];
    v_locked text[];
    v_closed text;
begin
    if jsonb_typeof(p_named) = 'object' then
        v_batches := p_named->'batches';
        p_named := p_named->'schedules';
    end if;
    v_named := array(select jsonb_array_elements_text(p_named));
    if cardinality(v_named) > 0 then
        v_locked := lock_schedules(v_named);
        if cardinality(v_locked) < cardinality(v_named) then
            return json_build_object('now', v_now, 'missing', (
                select name from unnest(v_named) as n(name) where name not in (select unnest(v_locked)) limit 1));
        end if;
    end if;
    if v_batches is not null then
        v_closed := closed_batch(v_batches);
        if v_closed is not null then
            return json_build_object('now', v_now, 'closed', v_closed);
        end if;
    end if;
    return json_build_object('now', v_now, 'odd', enqueue_runs(p_runs, v_now));
end $$;

-- The same for schedules and batches that are there and locked. Returns [{place, run, is_new, occupied}].
create or replace function enqueue_runs(p_runs jsonb, p_now bigint) returns json
language plpgsql volatile as $$
declare
    n record;
    v_odd json[] := '{}';
    v_plain boolean;
    v_written uuid[];
begin
    -- What takes no place and has no key is written in one statement.
    with written as (
        insert into runs (id, task, args, queue, priority, due_at, created_at, retries, retry_delay, timeout, schedule,
            tick, backfill, reason, guard, batch)
        select x.id, x.task, x.args, x.queue, x.priority, coalesce(x.due_at, p_now + x.delay), p_now, x.retries,
            x.retry_delay, x.timeout, x.schedule, x.tick, x.backfill, x.reason, x.guard, x.batch
        from new_runs(p_runs) x
        where x."unique" is null and (x.schedule is null or x.backfill is not null and x.overlap is null)
        on conflict (id) do nothing
        returning id
    )
    select array_agg(id) into v_written from written;
    if coalesce(cardinality(v_written), 0) = jsonb_array_length(p_runs) then
        return '[]';
    end if;
    for n in
        select * from new_runs(p_runs) x where x.id not in (select unnest(coalesce(v_written, '{}')))
        order by x."unique" nulls first, x.place
    loop
        v_odd := v_odd || enqueue_one(n.place, p_runs->(n.place::int - 1), p_now);
    end loop;
    return array_to_json(v_odd);
end $$;

create or replace function new_runs(p_runs jsonb)
returns table (place bigint, id uuid, task text, args text, queue text, priority bigint, due_at bigint, delay bigint,
    retries bigint, retry_delay bigint, timeout bigint, "unique" text, schedule text, tick bigint, backfill text,
    reason text, overlap text, guard text, batch text)
language sql stable as $$
    select r.place, x.*
    from jsonb_array_elements(p_runs) with ordinality as r(run, place)
    cross join lateral jsonb_to_record(r.run) as x(
        id uuid, task text, args text, queue text, priority bigint, due_at bigint, delay bigint, retries bigint,
        retry_delay bigint, timeout bigint, "unique" text, schedule text, tick bigint, backfill text, reason text,
        overlap text, guard text, batch text)
$$;

-- One run that may meet another: its id's, its key's or its schedule's.
create or replace function enqueue_one(p_place bigint, p_run jsonb, p_now bigint) returns json
language plpgsql volatile as $$
declare
    n record;
    r runs;
    e record;
    v_overlap text;
begin
    select * into n from new_runs(jsonb_build_array(p_run));
    for i in 1 .. 100 loop
        select * into r from runs where id = n.id;
        if found then
            return json_build_object('place', p_place, 'run', to_json(r));
        end if;
        select * into r from runs where "unique" = n."unique" and state in ('pending', 'running');
        if found then
            return json_build_object('place', p_place, 'run', to_json(r), 'is_new', false);
        end if;
        v_overlap := case when n.schedule is null or n.backfill is not null and n.overlap is null then 'allow'
                     when n.overlap is not null then n.overlap
                     else (select overlap from schedules where name = n.schedule) end;
        e := enter(n.schedule, v_overlap, false);
        if e.in_the_way is not null then
            select * into r from runs where id = e.in_the_way;
            return json_build_object('place', p_place, 'run', to_json(r), 'is_new', false, 'occupied', true);
        end if;
        insert into runs (id, task, args, queue, priority, due_at, created_at, retries, retry_delay, timeout, "unique",
            schedule, tick, backfill, reason, guard, batch, serial, parked)
        values (n.id, n.task, n.args, n.queue, n.priority, coalesce(n.due_at, p_now + n.delay), p_now, n.retries,
            n.retry_delay, n.timeout, n."unique", n.schedule, n.tick, n.backfill, n.reason, n.guard, n.batch,
            v_overlap <> 'allow', e.parked)
        on conflict do nothing
        returning * into r;
        if found then
            perform make_room(n.schedule, e.superseded, e.asked_to_stop, p_now);
            return json_build_object('place', p_place, 'run', to_json(r));
        end if;
        -- Somebody else wrote the key in between, and ended that run before it could be read: again.
    end loop;
    raise exception 'oncron: the unique key % changes hands faster than a run can be written', n."unique"
        using errcode = 'serialization_failure';
end $$;

-- cancel: a pending run ends here and now, a running one is asked to stop (G6).
-- Returns the run, or null if there is none.
create or replace function cancel(p_id uuid, p_opening bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    r runs;
begin
    perform lock_schedules(array(select schedule from runs where id = p_id and schedule is not null));
    select * into r from runs where id = p_id for no key update;
    if not found then
        return null;
    end if;
    if r.state not in ('pending', 'running') or r.opening <> p_opening then
        return to_json(r);
    end if;
    update runs
    set cancel_requested = true,
        state = case state when 'pending' then 'cancelled' else state end,
        ended_at = case state when 'pending' then v_now end,
        parked = parked and state <> 'pending'
    where id = p_id returning * into r;
    if r.state = 'cancelled' and r.serial then
        perform fill_places(array[r.schedule]);
    end if;
    return to_json(r);
end $$;

-- retry: re-opens an ended run unless its key or its schedule's place is taken (G6).
-- Returns {run, is_new, occupied}, or null if there is no such run.
create or replace function retry(p_id uuid, p_opening bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    r runs;
    v_other runs;
    v_serial boolean;
begin
    perform lock_schedules(array(select schedule from runs where id = p_id and schedule is not null));
    perform from batches where id = any(array(select batch from runs where id = p_id)) for no key update;
    select * into r from runs where id = p_id for no key update;
    if not found then
        return null;
    end if;
    if r.state in ('pending', 'running') or r.opening <> p_opening then
        return json_build_object('run', to_json(r), 'is_new', false);
    end if;
    v_serial := r.schedule is not null and r.backfill is null
        and (select overlap <> 'allow' from schedules where name = r.schedule);
    select * into v_other from runs where "unique" = r."unique" and state in ('pending', 'running');
    if not found and v_serial then
        select * into v_other from runs
        where schedule = r.schedule and serial and not parked and state in ('pending', 'running') limit 1;
    end if;
    if v_other.id is not null then
        return json_build_object('run', to_json(v_other), 'is_new', false, 'occupied', true);
    end if;
    begin
        update runs
        set state = 'pending', opening = opening + 1, due_at = v_now, ended_at = null, given_back = attempt, releases = 0,
            worker = null, cancel_requested = false, result = null, error = null, reason = null,
            serial = coalesce(v_serial, false), parked = false
        where id = p_id returning * into r;
    exception when unique_violation then
        -- Enqueued since the look above; a caught violation leaves no ERROR line in the server's log.
        select * into v_other from runs where "unique" = r."unique" and state in ('pending', 'running');
        return json_build_object('run', to_json(v_other), 'is_new', false, 'occupied', true);
    end;
    update batches set reopened = true where id = r.batch and not reopened;
    return json_build_object('run', to_json(r));
end $$;
