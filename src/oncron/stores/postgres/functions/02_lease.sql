-- Leases: who may execute what, until when, under which token (G4, G5).

-- Claims go by this: sixty seconds of waiting outweigh one step of priority.
create or replace function order_key(r runs) returns bigint language sql immutable as $$
    select r.due_at - 60000000 * r.priority
$$;

-- Leases pending runs, in the order given, to the worker of p_claim. The caller holds them and
-- their schedules locked. Tokens are made here, in the rows (G5). Returns their records in order.
create or replace function lease(p_ids uuid[], p_claim jsonb, p_now bigint) returns json
language plpgsql volatile as $$
declare
    v_tokens jsonb;
    v_runs json;
begin
    if exists (select from runs where id = any(p_ids) and schedule is not null) then
        with taken as (
            select schedule, count(*) as n, max(token) + 1 as least
            from runs where id = any(p_ids) and schedule is not null group by schedule
        ), moved as (
            update cursors c set last_token = greatest(c.last_token + 1, t.least, p_now) + t.n - 1
            from taken t where c.name = any(array[t.schedule])
            returning c.name, c.last_token - t.n as before
        )
        select jsonb_object_agg(name, before) into v_tokens from moved;
    end if;
    with picked as (
        select u.id, u.place, row_number() over (partition by r.schedule order by u.place) as nth
        from unnest(p_ids) with ordinality as u(id, place) join runs r on r.id = any(array[u.id])
    ), leased as (
        update runs r
        set state = 'running', attempt = r.attempt + 1, started_at = coalesce(r.started_at, p_now),
            worker = p_claim->>'worker', claim_id = p_claim->>'claim_id', outcome = null,
            token = coalesce((v_tokens->>r.schedule)::bigint + p.nth, greatest(r.token + 1, p_now))
        from picked p where r.id = any(array[p.id])
        returning p.place, to_json(r) as run
    )
    select json_agg(run order by place) into v_runs from leased;
    return v_runs;
end $$;

-- The worker's lease reaches at least two thirds of lease_for past now; returns its end. Taken last
-- by every step that takes it: whoever holds a worker's row waits for nothing more.
create or replace function renew(p_worker text, p_lease_for bigint, p_now bigint) returns bigint
language plpgsql volatile as $$
declare
    v_until bigint;
begin
    select lease_until into v_until from workers where id = p_worker and not has_left;
    if found and v_until >= p_now + p_lease_for * 2 / 3 then
        return v_until;
    end if;
    insert into workers as w (id, lease_until, record)
    values (p_worker, p_now + p_lease_for, json_build_object('id', p_worker, 'started_at', p_now))
    on conflict (id) do update
    set lease_until = case when w.lease_until < p_now + p_lease_for * 2 / 3 then p_now + p_lease_for
                      else w.lease_until end,
        record = case when w.has_left then excluded.record else w.record end,
        has_left = false
    returning lease_until into v_until;
    return v_until;
end $$;

-- The lanes (task, queue, priority) that hold ready runs, of these tasks and queues (null: all) that are not paused:
-- an index probe each, however many runs they hold.
create or replace function ready_lanes(
    p_tasks text[], p_queues text[], out tasks text[], out queues text[], out priorities bigint[])
language plpgsql volatile as $$
declare
    v_tasks text[] := p_tasks;
    v_queues text[] := array_fill(''::text, array[cardinality(p_tasks)]);
    v_priorities bigint[] := array_fill(-9223372036854775808, array[cardinality(p_tasks)]);
    v_paused text[];
begin
    tasks := '{}';
    queues := '{}';
    priorities := '{}';
    loop
        select array_agg(n.task), array_agg(n.queue), array_agg(n.priority) into v_tasks, v_queues, v_priorities
        from unnest(v_tasks, v_queues, v_priorities) as l(task, queue, priority)
        cross join lateral (
            select r.task, r.queue, r.priority from runs r
            where r.state = 'pending' and not r.parked and r.task = l.task and (r.queue, r.priority) > (l.queue, l.priority)
            order by r.queue, r.priority limit 1
        ) n;
        exit when v_tasks is null;
        tasks := tasks || v_tasks;
        queues := queues || v_queues;
        priorities := priorities || v_priorities;
    end loop;
    if cardinality(tasks) = 0 then
        return;
    end if;
    v_paused := paused_queues();
    if p_queues is not null or v_paused <> '{}' then
        select coalesce(array_agg(l.task), '{}'), coalesce(array_agg(l.queue), '{}'), coalesce(array_agg(l.priority), '{}')
        into tasks, queues, priorities
        from unnest(tasks, queues, priorities) as l(task, queue, priority)
        where (p_queues is null or l.queue = any(p_queues)) and l.queue <> all(v_paused);
    end if;
end $$;

create or replace function paused_queues() returns text[] language plpgsql volatile as $$
begin
    return array(select name from queues where paused);
end $$;

-- When the first claimable run of these lanes is or was due, leaving out what has no room.
create or replace function next_due(p_tasks text[], p_queues text[], p_priorities bigint[], p_room jsonb) returns bigint
language plpgsql volatile as $$
begin
    return (
        select min(d.due_at) from unnest(p_tasks, p_queues, p_priorities) as l(task, queue, priority)
        cross join lateral (
            select r.due_at from runs r
            where r.state = 'pending' and not r.parked and r.task = l.task and r.queue = l.queue
                and r.priority = l.priority
            order by r.due_at limit 1
        ) d
        where p_room = '{}' or fits(p_room, l.task, l.queue)
    );
end $$;
