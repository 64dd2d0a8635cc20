-- Queues as the whole fleet sees them: paused or not, and how many claims of them may be held (G10).

-- set_queue: pauses or resumes a queue for everybody. Returns its QueueRecord. A claim in flight that saw the queue
-- before this was committed came before it.
create or replace function set_queue(p_name text, p_paused boolean, p_note text, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
begin
    insert into queues as q (name, paused, note, changed_at)
    select p_name, p_paused, p_note, v_now
    where p_paused or p_note <> '' or exists (select from queues where name = p_name)
    on conflict (name) do update set paused = excluded.paused, note = excluded.note, changed_at = excluded.changed_at
    where q.paused <> excluded.paused or q.note <> excluded.note;
    return (select to_json(c) from counted_queues(p_name, v_now) c where c.name = p_name
        union all select json_build_object('name', p_name) limit 1);
end $$;

-- list_queues: [QueueRecord] by name, of those that have open runs or are paused.
create or replace function list_queues(p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    return (
        select coalesce(json_agg(to_json(c) order by c.name), '[]') from counted_queues(null, store_now(p_now)) c
        where c.paused or c.ready > 0 or c.waiting > 0 or c.running > 0);
end $$;

-- The queues on record and those that have open runs (null: all, else the one), counted. Each stage of life is read
-- from its own index.
create or replace function counted_queues(p_name text, p_now bigint)
returns table (name text, paused boolean, note text, changed_at bigint, ready bigint, waiting bigint, running bigint,
    oldest_due_at bigint)
language plpgsql volatile as $$
begin
    return query
        with counted as (
            select s.queue, count(*) filter (where s.is_ready) as ready,
                count(*) filter (where not s.is_ready) as waiting,
                count(*) filter (where s.is_ready is null) as running,
                min(s.due_at) filter (where s.is_ready) as oldest
            from (
                select r.queue, r.due_at, r.due_at <= p_now as is_ready from runs r
                where r.state = 'pending' and not r.parked and (p_name is null or r.queue = p_name)
                union all
                select r.queue, null, false from runs r
                where r.parked and r.state = 'pending' and (p_name is null or r.queue = p_name)
                union all
                select r.queue, null, null from runs r
                where r.state = 'running' and (p_name is null or r.queue = p_name)
            ) s group by s.queue
        )
        select coalesce(q.name, c.queue), coalesce(q.paused, false), coalesce(q.note, ''), q.changed_at,
            coalesce(c.ready, 0), coalesce(c.waiting, 0), coalesce(c.running, 0), c.oldest
        from counted c
        full join (select k.* from queues k where p_name is null or k.name = p_name) q on q.name = c.queue;
end $$;

-- How many more claims p_claim may make, as {tasks: {task: room}, queues: {queue: room}, fleet: room}, each where
-- it has a limit. Locks the rows of what is limited, by name, tasks before queues before the fleet, so that claims
-- of one are counted one after the other (G10). What is held counts until finish or reap frees it, expired or not.
create or replace function room_of(p_claim jsonb) returns jsonb
language plpgsql volatile as $$
declare
    v_tasks text[];
    v_queues text[];
    v_fleet bigint := p_claim->>'fleet_limit';
begin
    if not is_limited(p_claim) then
        return '{}';
    end if;
    v_tasks := array(select m->>0 from jsonb_array_elements(p_claim->'max_running') m);
    v_queues := array(select m->>0 from jsonb_array_elements(p_claim->'queue_limits') m);
    perform lock_limits(v_tasks, v_queues, v_fleet is not null);
    -- A statement of its own: its snapshot is taken under the locks.
    return (
        with held as materialized (
            select task, queue from runs
            where state = 'running' and (task = any(v_tasks) or queue = any(v_queues) or v_fleet is not null)
        )
        select jsonb_strip_nulls(jsonb_build_object(
            'tasks', (
                select jsonb_object_agg(m->>0, (m->>1)::bigint - (select count(*) from held where task = m->>0))
                from jsonb_array_elements(p_claim->'max_running') m),
            'queues', (
                select jsonb_object_agg(m->>0, (m->>1)::bigint - (select count(*) from held where queue = m->>0))
                from jsonb_array_elements(p_claim->'queue_limits') m),
            'fleet', v_fleet - (select count(*) from held)))
    );
end $$;

-- Whether p_claim has any limit but its own. An older release's has no limits of queues or of the fleet.
create or replace function is_limited(p_claim jsonb) returns boolean
language sql immutable as $$
    select jsonb_array_length(p_claim->'max_running') > 0 or p_claim->>'fleet_limit' is not null
        or coalesce(jsonb_array_length(p_claim->'queue_limits'), 0) > 0
$$;

create or replace function lock_limits(p_tasks text[], p_queues text[], p_fleet boolean) returns void
language plpgsql volatile as $$
begin
    if cardinality(p_tasks) > 0 then
        perform from tasks where name = any(p_tasks) order by name for no key update;
        if (select count(*) from tasks where name = any(p_tasks)) < cardinality(p_tasks) then
            insert into tasks select unnest(p_tasks) order by 1 on conflict do nothing;
            perform from tasks where name = any(p_tasks) order by name for no key update;
        end if;
    end if;
    if cardinality(p_queues) > 0 then
        perform from queues where name = any(p_queues) order by name for no key update;
        if (select count(*) from queues where name = any(p_queues)) < cardinality(p_queues) then
            insert into queues (name) select unnest(p_queues) order by 1 on conflict do nothing;
            perform from queues where name = any(p_queues) order by name for no key update;
        end if;
    end if;
    if p_fleet then
        perform from fleet where one for no key update;
        if not found then
            insert into fleet default values on conflict do nothing;
            perform from fleet where one for no key update;
        end if;
    end if;
end $$;

-- Whether a run of this task and queue fits the room.
create or replace function fits(p_room jsonb, p_task text, p_queue text) returns boolean
language sql immutable as $$
    select least((p_room->'tasks'->>p_task)::bigint, (p_room->'queues'->>p_queue)::bigint,
        (p_room->>'fleet')::bigint, 1) > 0
$$;

-- The room that is left after p_ids were leased.
create or replace function room_left(p_room jsonb, p_ids uuid[]) returns jsonb
language plpgsql volatile as $$
begin
    if p_room = '{}' then
        return p_room;
    end if;
    return (
        with taken as materialized (
            select r.task, r.queue from unnest(p_ids) as u(id) join runs r on r.id = any(array[u.id])
        )
        select jsonb_strip_nulls(jsonb_build_object(
            'tasks', (
                select jsonb_object_agg(key, value::bigint - (select count(*) from taken where task = key))
                from jsonb_each_text(p_room->'tasks')),
            'queues', (
                select jsonb_object_agg(key, value::bigint - (select count(*) from taken where queue = key))
                from jsonb_each_text(p_room->'queues')),
            'fleet', (p_room->>'fleet')::bigint - cardinality(p_ids))));
end $$;

-- Of runs in claim order, given by task and queue: the places of those that are taken when each takes its share of
-- the room, at most p_limit. What does not fit is passed over.
create or replace function fitting(p_tasks text[], p_queues text[], p_room jsonb, p_limit bigint) returns bigint[]
language plpgsql volatile as $$
declare
    v_tasks jsonb := coalesce(p_room->'tasks', '{}');
    v_queues jsonb := coalesce(p_room->'queues', '{}');
    v_limit bigint := least(p_limit, (p_room->>'fleet')::bigint);
    v_task bigint;
    v_queue bigint;
    v_taken bigint[] := '{}';
begin
    for i in 1 .. cardinality(p_tasks) loop
        exit when cardinality(v_taken) >= v_limit;
        v_task := v_tasks->>p_tasks[i];
        v_queue := v_queues->>p_queues[i];
        continue when least(v_task, v_queue, 1) <= 0;
        v_taken := v_taken || i::bigint;
        if v_task is not null then
            v_tasks := jsonb_set(v_tasks, array[p_tasks[i]], to_jsonb(v_task - 1));
        end if;
        if v_queue is not null then
            v_queues := jsonb_set(v_queues, array[p_queues[i]], to_jsonb(v_queue - 1));
        end if;
    end loop;
    return v_taken;
end $$;
