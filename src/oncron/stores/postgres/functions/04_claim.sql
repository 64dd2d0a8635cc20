-- claim: due, unparked runs become leases, at most `limit`, queue by queue (G4, G5, G10).
--
-- p_claim  a ClaimSpec
-- returns  {now, lease_until, runs, next_due_at}
--
-- Runs and their schedules are taken with skip locked: a claim waits for nobody's rows but those of
-- the tasks with max_running, whose claims are counted one after the other. What it skipped shows in
-- next_due_at, so that the caller comes back for it.
create or replace function claim(p_claim jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_worker text := p_claim->>'worker';
    v_tasks text[] := array(select jsonb_array_elements_text(p_claim->'tasks'));
    v_order text[] := queues_of(p_claim);
    v_lanes record := ready_lanes(v_order);
    v_limit bigint := (p_claim->>'limit')::bigint;
    v_room jsonb := '{}';
    v_ids uuid[] := '{}';
    v_runs json;
    v_until bigint;
begin
    select json_agg(to_json(r) order by array_position(v_order, r.queue), order_key(r), r.due_at, r.id) into v_runs
    from runs r
    where r.worker = v_worker and r.state = 'running' and r.claim_id = p_claim->>'claim_id';

    if v_runs is null and v_limit > 0 then
        v_room := room_of(p_claim);
        if v_room = '{}' then
            v_ids := ready(v_tasks, v_order, v_lanes.queues, v_lanes.priorities, v_limit, v_now);
        else
            v_ids := ready_with_room(v_tasks, v_order, v_lanes.queues, v_lanes.priorities, v_limit, v_room, v_now);
        end if;
        if cardinality(v_ids) > 0 then
            v_ids := without_busy_schedules(v_ids);
        end if;
        if cardinality(v_ids) > 0 then
            v_runs := lease(v_ids, p_claim, v_now);
        end if;
        v_tasks := with_room_left(v_tasks, v_room, v_ids);
    end if;

    if v_runs is not null then
        v_until := renew(v_worker, (p_claim->>'lease_for')::bigint, v_now);
    else
        select lease_until into v_until from workers where id = v_worker;
    end if;
    return json_build_object('now', v_now, 'lease_until', coalesce(v_until, 0), 'runs', coalesce(v_runs, '[]'),
        'next_due_at', next_due(v_tasks, v_lanes.queues, v_lanes.priorities));
end $$;

-- Locks and returns the first due runs of these tasks and lanes, in claim order. Locked ones are passed
-- over. p_order is the queues in the order wanted, or null.
create or replace function ready(
    p_tasks text[], p_order text[], p_queues text[], p_priorities bigint[], p_limit bigint, p_now bigint)
returns uuid[] language plpgsql volatile as $$
declare
    v_shares bigint[] := array[p_limit];
    v_ids uuid[] := '{}';
begin
    if cardinality(p_queues) > 1 then
        -- How many of each lane are among the first of all.
        v_shares := array(
            select coalesce(s.n, 0) from unnest(p_queues) with ordinality as l(queue, lane)
            left join (
                select f.lane, count(*) as n from (
                    select l.lane from unnest(p_queues, p_priorities) with ordinality as l(queue, priority, lane)
                    cross join lateral (
                        select r.due_at, r.id from runs r
                        where r.state = 'pending' and not r.parked and r.queue = l.queue and r.priority = l.priority
                            and r.due_at <= p_now and r.task = any(p_tasks)
                        order by r.due_at, r.id limit p_limit
                    ) c
                    order by array_position(p_order, l.queue), c.due_at - 60000000 * l.priority, c.due_at, c.id
                    limit p_limit
                ) f group by f.lane
            ) s on s.lane = l.lane
            order by l.lane);
    end if;
    for i in 1 .. cardinality(p_queues) loop
        continue when v_shares[i] = 0;
        v_ids := v_ids || array(
            select r.id from runs r
            where r.state = 'pending' and not r.parked and r.queue = p_queues[i] and r.priority = p_priorities[i]
                and r.due_at <= p_now and r.task = any(p_tasks)
            order by r.due_at, r.id limit v_shares[i] for update skip locked);
    end loop;
    if cardinality(p_queues) > 1 then
        return in_claim_order(v_ids, p_order);
    end if;
    return v_ids;
end $$;

create or replace function in_claim_order(p_ids uuid[], p_order text[]) returns uuid[]
language plpgsql volatile as $$
begin
    return array(
        select r.id from unnest(p_ids) as u(id) join runs r on r.id = any(array[u.id])
        order by array_position(p_order, r.queue), order_key(r), r.due_at, r.id);
end $$;

-- The same where some tasks have room for p_room->task more only. It may lock more than it returns.
create or replace function ready_with_room(
    p_tasks text[], p_order text[], p_queues text[], p_priorities bigint[], p_limit bigint, p_room jsonb, p_now bigint)
returns uuid[] language plpgsql volatile as $$
declare
    v_open text[] := array(select t from unnest(p_tasks) t where not p_room ? t);
    v_ids uuid[] := ready(v_open, p_order, p_queues, p_priorities, p_limit, p_now);
    v_limited record;
begin
    for v_limited in
        select key as task, value::bigint as n from jsonb_each_text(p_room) where key = any(p_tasks) and value::bigint > 0
    loop
        v_ids := v_ids || ready(array[v_limited.task], p_order, p_queues, p_priorities, least(v_limited.n, p_limit), p_now);
    end loop;
    return (in_claim_order(v_ids, p_order))[1:p_limit];
end $$;

-- The runs whose schedule's row could be locked at once, or that have none: a claim moves that row's
-- last token (G5).
create or replace function without_busy_schedules(p_ids uuid[]) returns uuid[]
language plpgsql volatile as $$
declare
    v_wanted text[] := array(select distinct schedule from runs where id = any(p_ids) and schedule is not null);
    v_locked text[];
begin
    if cardinality(v_wanted) = 0 then
        return p_ids;
    end if;
    v_locked := array(
        select name from cursors where name = any(v_wanted) order by name for no key update skip locked);
    if cardinality(v_locked) = cardinality(v_wanted) then
        return p_ids;
    end if;
    return array(
        select u.id from unnest(p_ids) with ordinality as u(id, place) join runs r on r.id = any(array[u.id])
        where r.schedule is null or r.schedule in (select unnest(v_locked)) order by u.place);
end $$;

-- The tasks that could be claimed once more, after p_ids were.
create or replace function with_room_left(p_tasks text[], p_room jsonb, p_ids uuid[]) returns text[]
language plpgsql volatile as $$
begin
    if p_room = '{}' then
        return p_tasks;
    end if;
    return array(
        select t from unnest(p_tasks) t
        where p_room->>t is null
            or (p_room->>t)::bigint > (select count(*) from runs where id = any(p_ids) and task = t));
end $$;
