-- claim: due, unparked runs become leases, at most `limit`, queue by queue (G4, G5, G10).
--
-- p_claim  a ClaimSpec
-- returns  {now, lease_until, runs, next_due_at}
--
-- Runs and their schedules are taken with skip locked: a claim waits for nobody's rows but those of
-- what is limited (tasks, queues, the fleet), whose claims are counted one after the other. What it skipped shows
-- in next_due_at, so that the caller comes back for it.
create or replace function claim(p_claim jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_worker text := p_claim->>'worker';
    v_order text[] := queues_of(p_claim);
    v_lanes record := ready_lanes(array(select jsonb_array_elements_text(p_claim->'tasks')), v_order);
    v_limit bigint := (p_claim->>'limit')::bigint;
    v_room jsonb := '{}';
    v_ids uuid[] := '{}';
    v_runs json;
    v_until bigint;
begin
    select json_agg(h.run order by array_position(v_order, h.queue), h.order_key, h.due_at, h.id) into v_runs
    from (
        select to_json(r) as run, r.queue, order_key(r), r.due_at, r.id from runs r
        where r.worker = v_worker and r.state = 'running' and r.claim_id = p_claim->>'claim_id' offset 0
    ) h;

    if cardinality(v_lanes.tasks) > 0 then
        v_room := room_of(p_claim);
    end if;
    if v_runs is null and v_limit > 0 and cardinality(v_lanes.tasks) > 0 then
        v_ids := ready(v_lanes.tasks, v_lanes.queues, v_lanes.priorities, v_order, v_room, v_limit, v_now);
        if cardinality(v_ids) > 0 then
            v_ids := without_busy_schedules(v_ids);
        end if;
        if cardinality(v_ids) > 0 then
            v_runs := lease(v_ids, p_claim, v_now);
            v_room := room_left(v_room, v_ids);
        end if;
    end if;

    if v_runs is not null then
        v_until := renew(v_worker, (p_claim->>'lease_for')::bigint, v_now);
    else
        select lease_until into v_until from workers where id = v_worker;
    end if;
    return json_build_object('now', v_now, 'lease_until', coalesce(v_until, 0), 'runs', coalesce(v_runs, '[]'),
        'next_due_at', next_due(v_lanes.tasks, v_lanes.queues, v_lanes.priorities, v_room));
end $$;

-- Locks and returns the first due runs of these lanes, in claim order. Locked ones are passed over.
--   p_order  the queues in the order wanted, or null
--   p_room   what `room_of` says
create or replace function ready(
    p_tasks text[], p_queues text[], p_priorities bigint[], p_order text[], p_room jsonb, p_limit bigint, p_now bigint)
returns uuid[] language plpgsql volatile as $$
declare
    v_shares bigint[];
    v_ids uuid[] := '{}';
begin
    if cardinality(p_tasks) = 1 then
        v_shares := array[least(p_limit, (p_room->>'fleet')::bigint,
            (p_room->'tasks'->>p_tasks[1])::bigint, (p_room->'queues'->>p_queues[1])::bigint)];
    elsif p_room ? 'queues' then
        v_shares := lane_shares_by_queue(p_tasks, p_queues, p_priorities, p_order, p_room, p_limit, p_now);
    else
        v_shares := lane_shares(p_tasks, p_queues, p_priorities, p_order, coalesce(p_room->'tasks', '{}'),
            greatest(0, least(p_limit, (p_room->>'fleet')::bigint)), p_now);
    end if;
    for i in 1 .. cardinality(p_tasks) loop
        continue when v_shares[i] <= 0;
        v_ids := v_ids || array(
            select r.id from runs r
            where r.state = 'pending' and not r.parked and r.task = p_tasks[i] and r.queue = p_queues[i]
                and r.priority = p_priorities[i] and r.due_at <= p_now
            order by r.due_at, r.id limit v_shares[i] for update skip locked);
    end loop;
    if cardinality(p_tasks) = 1 then
        return v_ids;
    end if;
    return array(
        select r.id from unnest(v_ids) as u(id) join runs r on r.id = any(array[u.id])
        order by array_position(p_order, r.queue), order_key(r), r.due_at, r.id);
end $$;

-- How many of each lane are among the first of all of them, with p_room: {task: how many of it at most}.
create or replace function lane_shares(
    p_tasks text[], p_queues text[], p_priorities bigint[], p_order text[], p_room jsonb, p_limit bigint, p_now bigint)
returns bigint[] language plpgsql volatile as $$
declare
    v_shares bigint[] := array_fill(0::bigint, array[cardinality(p_tasks)]);
    v_share record;
begin
    for v_share in
        select chosen.lane, count(*) as n from (
            select c.lane from (
                select l.lane, l.task, r.due_at, r.id,
                    array_position(p_order, l.queue) as place, r.due_at - 60000000 * l.priority as order_key,
                    row_number() over (partition by l.task
                        order by array_position(p_order, l.queue), r.due_at - 60000000 * l.priority, r.due_at, r.id) as nth
                from unnest(p_tasks, p_queues, p_priorities) with ordinality as l(task, queue, priority, lane)
                cross join lateral (
                    select r.due_at, r.id from runs r
                    where r.state = 'pending' and not r.parked and r.task = l.task and r.queue = l.queue
                        and r.priority = l.priority and r.due_at <= p_now
                    order by r.due_at, r.id limit p_limit
                ) r
            ) c
            where c.nth <= coalesce((p_room->>c.task)::bigint, p_limit)
            order by c.place, c.order_key, c.due_at, c.id limit p_limit
        ) chosen group by chosen.lane
    loop
        v_shares[v_share.lane] := v_share.n;
    end loop;
    return v_shares;
end $$;

-- The same where queues have limits too, and with all of p_room.
create or replace function lane_shares_by_queue(
    p_tasks text[], p_queues text[], p_priorities bigint[], p_order text[], p_room jsonb, p_limit bigint, p_now bigint)
returns bigint[] language plpgsql volatile as $$
declare
    v_shares bigint[] := array_fill(0::bigint, array[cardinality(p_tasks)]);
    v_lanes bigint[];
    v_lane bigint;
begin
    select coalesce(array_agg(c.lane order by c.place, c.order_key, c.due_at, c.id), '{}') into v_lanes from (
        select l.lane, r.due_at, r.id, array_position(p_order, l.queue) as place,
            r.due_at - 60000000 * l.priority as order_key
        from unnest(p_tasks, p_queues, p_priorities) with ordinality as l(task, queue, priority, lane)
        cross join lateral (
            select r.due_at, r.id from runs r
            where r.state = 'pending' and not r.parked and r.task = l.task and r.queue = l.queue
                and r.priority = l.priority and r.due_at <= p_now
            order by r.due_at, r.id limit p_limit
        ) r
        where fits(p_room, l.task, l.queue)
    ) c;
    foreach v_lane in array coalesce((
        select array_agg(v_lanes[n]) from unnest(fitting(
            array(select p_tasks[lane] from unnest(v_lanes) with ordinality as u(lane, n) order by n),
            array(select p_queues[lane] from unnest(v_lanes) with ordinality as u(lane, n) order by n),
            p_room, p_limit)) n), '{}')
    loop
        v_shares[v_lane] := v_shares[v_lane] + 1;
    end loop;
    return v_shares;
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
