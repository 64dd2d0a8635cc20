-- fire: each schedule's cursor passes its due ticks, once (G1, G2, G3, G11).
--
-- p_plans  [{name, revision, seen, cursor, next_at, n, id, tick, due_at, catchup, missed, more}], by name:
--          n ticks, the first of them flat, for the usual plan of one; `more`: several ticks or gaps,
--          which are then in `ticks` [{id, tick, due_at, catchup, missed}] and `gaps`; `tz`: the version of
--          the zone data, where they play a part
-- p_claim  a ClaimSpec or null
-- returns  {now, lease_until, leases, odd}: `odd` are the results of plans that did not simply
--          become as many runs as they have ticks
--
-- The update is the compare-and-set and the lock: it comes first, and occupancy is judged in later
-- statements, which see all that was committed before the lock was had (G10).
create or replace function fire(p_plans jsonb, p_claim jsonb, p_fire_id text, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_count bigint := jsonb_array_length(p_plans);
    v_tasks text[];
    v_queues text[];
    v_moved bigint;
    v_plain text[];
    v_ids uuid[];
    v_ticks bigint[];
    v_dues bigint[];
    v_catchups boolean[];
    v_missed bigint[];
    v_slow text[];
    v_created uuid[] := '{}';
    v_leases jsonb := '[]';
    v_more json;
    v_odd json;
    v_until bigint := 0;
    v_plan record;
    v_newest text collate "C" := newest_tzdata(p_plans, v_now);
begin
    with moved as (
        update cursors c
        set cursor = p.cursor, fire_id = p_fire_id, fire_result = null,
            created_count = c.created_count + p.n,
            next_at = case when c.created_count + p.n >= c.run_limit then null else p.next_at end
        from jsonb_to_recordset(p_plans) as p(
            name text, revision bigint, seen bigint, cursor bigint, next_at bigint, n bigint,
            id uuid, tick bigint, due_at bigint, catchup boolean, missed bigint, more boolean, tz text)
        where c.name = any(array[p.name]) and c.status = 'active' and c.revision = p.revision and c.cursor = p.seen
            and p.cursor <= v_now and (p.tz is null or p.tz >= v_newest)
        returning c.name, p.n, p.id, p.tick, p.due_at, p.catchup, p.missed, p.more,
            p.n = 1 and not p.more and (c.run_limit is null or c.created_count <= c.run_limit) as plain
    )
    select count(*), array_agg(name) filter (where plain), array_agg(id) filter (where plain),
        array_agg(tick) filter (where plain), array_agg(due_at) filter (where plain),
        array_agg(catchup) filter (where plain), array_agg(missed) filter (where plain),
        coalesce(array_agg(name) filter (where not plain and (n > 0 or more)), '{}')
    into v_moved, v_plain, v_ids, v_ticks, v_dues, v_catchups, v_missed, v_slow
    from moved;

    if p_claim is not null then
        v_tasks := array(select jsonb_array_elements_text(p_claim->'tasks'));
        v_queues := queues_of(p_claim);
        if v_moved < v_count then
            v_leases := still_held(p_plans, p_claim, p_fire_id);
        end if;
    end if;

    if v_plain is not null then
        with placed as (
            insert into runs (id, task, schedule, tick, args, queue, priority, due_at, created_at, retries, retry_delay,
                timeout, serial, is_catchup, missed_count, guard)
            select u.id, s.task, u.name, u.tick, s.args, s.queue, s.priority, u.due_at, v_now, s.retries, s.retry_delay,
                s.timeout, s.overlap <> 'allow', u.catchup, u.missed, s.guard
            from unnest(v_plain, v_ids, v_ticks, v_dues, v_catchups, v_missed)
                as u(name, id, tick, due_at, catchup, missed)
            join schedules s on s.name = any(array[u.name])
            where s.unique_key is null and (s.overlap = 'allow' or (
                select true from runs r
                where r.schedule = u.name and r.serial and not r.parked and r.state in ('pending', 'running') limit 1
                ) is null)
            on conflict (id) do nothing
            returning id
        )
        select coalesce(array_agg(id), '{}') into v_created from placed;
        if cardinality(v_created) < cardinality(v_plain) then
            v_slow := v_slow || array(
                select u.name from unnest(v_plain, v_ids) as u(name, id)
                where u.id not in (select unnest(v_created)));
        end if;
    end if;

    if cardinality(v_slow) > 0 then
        -- Unique keys in one order for everybody: an insert waits for another's of the same key.
        for v_plan in
            select p.plan from jsonb_array_elements(p_plans) as p(plan)
            join schedules s on s.name = any(array[p.plan->>'name'])
            where p.plan->>'name' in (select unnest(v_slow)) order by s.unique_key nulls first, s.name
        loop
            v_created := v_created || place_plan(v_plan.plan, v_now);
        end loop;
    end if;

    if v_moved < v_count or cardinality(v_slow) > 0 then
        v_odd := odd_results(p_plans, p_fire_id, v_now);
    end if;
    if p_claim is not null then
        if cardinality(v_created) > 0 and (p_claim->>'limit')::bigint > 0 then
            v_more := lease(among(v_created, p_claim, v_tasks, v_queues, v_now), p_claim, v_now);
        end if;
        v_leases := v_leases || coalesce(v_more::jsonb, '[]');
        if jsonb_array_length(v_leases) > 0 then
            v_until := renew(p_claim->>'worker', (p_claim->>'lease_for')::bigint, v_now);
        end if;
    end if;
    return json_build_object('now', v_now, 'lease_until', v_until, 'leases', v_leases, 'odd', coalesce(v_odd, '[]'));
end $$;

-- The same for one plan of one tick without gaps, which is what most calls are: no sets, and a run that
-- may start at once is leased as it is inserted, one row version less on its way.
create or replace function fire_one(p_plan jsonb, p_claim jsonb, p_fire_id text, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_name text := p_plan->>'name';
    v_id uuid := p_plan->>'id';
    v_cursor bigint := p_plan->>'cursor';
    v_due_at bigint := p_plan->>'due_at';
    c record;
    s record;
    v_at_once boolean := false;
    v_run json;
    v_created uuid[] := '{}';
    v_leases json := '[]';
    v_odd json := '[]';
    v_until bigint := 0;
    v_newest text collate "C" := case when p_plan ? 'tz' then newest_tzdata(jsonb_build_array(p_plan), v_now) else '' end;
begin
    update cursors k
    set cursor = v_cursor, fire_id = p_fire_id, fire_result = null, created_count = k.created_count + 1,
        next_at = case when k.created_count + 1 >= k.run_limit then null else (p_plan->>'next_at')::bigint end,
        last_token = case when p_claim is null then k.last_token else greatest(k.last_token + 1, v_now) end
    where k.name = v_name and k.status = 'active' and k.revision = (p_plan->>'revision')::bigint
        and k.cursor = (p_plan->>'seen')::bigint and v_cursor <= v_now
        and (v_newest = '' or (p_plan->>'tz') collate "C" >= v_newest)
    returning k.last_token, k.run_limit is null or k.created_count <= k.run_limit as within_limit into c;
    if not found then
        if p_claim is not null then
            v_leases := still_held(jsonb_build_array(p_plan), p_claim, p_fire_id)::json;
        end if;
        v_odd := odd_results(jsonb_build_array(p_plan), p_fire_id, v_now);
    else
        select k.*, (
            select true from runs r
            where r.schedule = v_name and r.serial and not r.parked and r.state in ('pending', 'running') limit 1
            ) as taken, (select q.paused from queues q where q.name = k.queue) as paused
        into s from schedules k where k.name = v_name;
        if c.within_limit and s.unique_key is null and (s.taken is null or s.overlap = 'allow') then
            if p_claim is not null and v_due_at <= v_now then
                v_at_once := (p_claim->'tasks') ? s.task and (p_claim->>'limit')::bigint > 0
                    and (jsonb_typeof(p_claim->'queues') = 'null' or (p_claim->'queues') ? s.queue)
                    and s.paused is not true and not is_limited(p_claim);
            end if;
            insert into runs (id, task, schedule, tick, args, queue, priority, due_at, created_at, retries, retry_delay,
                timeout, serial, is_catchup, missed_count, guard, state, attempt, started_at, worker, claim_id, token)
            values (v_id, s.task, v_name, (p_plan->>'tick')::bigint, s.args, s.queue, s.priority, v_due_at, v_now,
                s.retries, s.retry_delay, s.timeout, s.overlap <> 'allow', (p_plan->>'catchup')::boolean,
                (p_plan->>'missed')::bigint, s.guard, case when v_at_once then 'running' else 'pending' end,
                v_at_once::int, case when v_at_once then v_now end, case when v_at_once then p_claim->>'worker' end,
                case when v_at_once then p_claim->>'claim_id' end, case when v_at_once then c.last_token else 0 end)
            on conflict (id) do nothing
            returning case when v_at_once then to_json(runs) end into v_run;
            v_created := case when found then array[v_id] else '{}' end;
        end if;
        if cardinality(v_created) = 0 then
            v_created := place_plan(p_plan, v_now);
            v_odd := odd_results(jsonb_build_array(p_plan), p_fire_id, v_now);
        end if;
        if v_run is not null then
            v_leases := json_build_array(v_run);
        elsif p_claim is not null and cardinality(v_created) > 0 and (p_claim->>'limit')::bigint > 0 then
            v_leases := lease(among(v_created, p_claim, array(select jsonb_array_elements_text(p_claim->'tasks')),
                queues_of(p_claim), v_now), p_claim, v_now);
        end if;
    end if;
    if json_array_length(v_leases) > 0 then
        v_until := renew(p_claim->>'worker', (p_claim->>'lease_for')::bigint, v_now);
    end if;
    return json_build_object('now', v_now, 'lease_until', v_until, 'leases', coalesce(v_leases, '[]'),
        'odd', coalesce(v_odd, '[]'));
end $$;

-- One plan whose cursor has moved, tick by tick: several ticks, gaps, a limit, a unique key or a
-- place that is taken. Writes what became of it into the schedule's row, returns the new runs.
create or replace function place_plan(p_plan jsonb, p_now bigint) returns uuid[]
language plpgsql volatile as $$
declare
    v_name text := p_plan->>'name';
    v_n bigint := (p_plan->>'n')::bigint;
    s schedules;
    t record;
    e record;
    v_count bigint;
    v_created uuid[] := '{}';
    v_refusal text;
    v_reason text;
    v_refused bigint[] := '{}';
    v_superseded uuid[] := '{}';
    v_stopped uuid[] := '{}';
begin
    select * into s from schedules where name = v_name;
    select created_count - v_n into v_count from cursors where name = v_name;
    for t in
        select * from jsonb_to_recordset(case when p_plan ? 'ticks' then p_plan->'ticks'
                                         when v_n > 0 then jsonb_build_array(p_plan) else '[]' end)
            as x(id uuid, tick bigint, due_at bigint, catchup boolean, missed bigint) order by x.tick
    loop
        continue when exists (select from runs where id = t.id);  -- the second belt of G1
        e := enter(v_name, s.overlap, v_n > 1);
        v_refusal := case when e.in_the_way is not null then 'overlap' when v_count >= s.run_limit then 'limit' end;
        if v_refusal is null then
            insert into runs (id, task, schedule, tick, args, queue, priority, due_at, created_at, retries, retry_delay,
                timeout, "unique", serial, parked, is_catchup, missed_count, guard)
            values (t.id, s.task, v_name, t.tick, s.args, s.queue, s.priority, t.due_at, p_now, s.retries, s.retry_delay,
                s.timeout, s.unique_key, s.overlap <> 'allow', e.parked, t.catchup or v_n > 1, t.missed, s.guard)
            on conflict do nothing;
            -- The id is new and its schedule locked: only the unique key can be in the way.
            v_refusal := case when not found then 'unique' end;
        end if;
        if v_refusal is null then
            perform make_room(v_name, e.superseded, e.asked_to_stop, p_now);
            v_created := v_created || t.id;
            v_superseded := v_superseded || e.superseded;
            v_stopped := array_remove(v_stopped || e.asked_to_stop, null);
            select created_count - v_n + cardinality(v_created) into v_count from cursors where name = v_name;
        else
            v_reason := v_refusal;
            v_refused := v_refused || t.tick;
        end if;
    end loop;
    if p_plan ? 'gaps' then
        perform record_gaps(v_name, p_plan->'gaps', (p_plan->>'seen')::bigint, p_now);
    end if;
    if v_reason is not null then
        perform record_gap(v_name, v_refused[1], v_refused[cardinality(v_refused)], cardinality(v_refused), v_reason,
            false, '', (p_plan->>'seen')::bigint, p_now);
    end if;
    if cardinality(v_created) < v_n or cardinality(v_superseded) > 0 or cardinality(v_stopped) > 0 then
        update cursors
        set created_count = v_count,
            next_at = case when v_count >= run_limit then null else (p_plan->>'next_at')::bigint end,
            fire_result = json_build_object('name', v_name, 'outcome', 'fired', 'created', cardinality(v_created),
                'skipped', cardinality(v_refused), 'reason', v_reason, 'superseded', v_superseded,
                'cancelled', v_stopped)
        where name = v_name;
    end if;
    return v_created;
end $$;

-- The newest zone data that a live scheduler has, if any plan depends on such.
create or replace function newest_tzdata(p_plans jsonb, p_now bigint) returns text
language plpgsql volatile as $$
begin
    if not jsonb_path_exists(p_plans, '$[*].tz') then
        return '';
    end if;
    return coalesce((
        select max((w.record::json->>'tzdata') collate "C") from workers w
        where w.lease_until > p_now and not w.has_left and w.record::jsonb->'roles' ? 'scheduler'), '');
end $$;

-- The results that the caller cannot tell by itself, [FireResult]: read from the schedules' rows, so that the
-- repetition of a fire_id answers as the first time (G7).
create or replace function odd_results(p_plans jsonb, p_fire_id text, p_now bigint) returns json
language plpgsql volatile as $$
begin
    return (
        select json_agg(coalesce(o.fired, json_build_object('name', p.name, 'outcome', o.outcome)))
        from jsonb_to_recordset(p_plans) as p(name text, revision bigint, seen bigint, cursor bigint)
        left join cursors c on c.name = any(array[p.name])
        cross join lateral (
            select case when repeated then c.fire_result::json end as fired,
                case when repeated then 'fired'
                     when c.status = 'active' and c.revision = p.revision and c.cursor = p.seen and p.cursor > p_now
                     then 'early'
                     else 'stale' end as outcome
            from (select c.fire_id = p_fire_id and c.revision = p.revision and c.cursor = p.cursor as repeated) x
        ) o
        where o.fired is not null or o.outcome <> 'fired'
    );
end $$;

-- Of the runs of the plans that this fire_id has fired: those that were leased then and still are (G7).
create or replace function still_held(p_plans jsonb, p_claim jsonb, p_fire_id text) returns jsonb
language plpgsql volatile as $$
begin
    return (
        select coalesce(jsonb_agg(h.run order by h.order_key, h.due_at, h.id), '[]')
        from (
            select to_json(r) as run, order_key(r), r.due_at, r.id from runs r
            where r.worker = p_claim->>'worker' and r.state = 'running' and r.claim_id = p_claim->>'claim_id' offset 0
        ) h
        where h.id in (
            select (t->>'id')::uuid from jsonb_array_elements(p_plans) p
            join cursors c on c.name = any(array[p->>'name']) and c.fire_id = p_fire_id
                and c.cursor = (p->>'cursor')::bigint and c.revision = (p->>'revision')::bigint
            cross join lateral jsonb_array_elements(coalesce(p->'ticks', jsonb_build_array(p))) t)
    );
end $$;

-- Which of these new runs p_claim leases, in claim order: under its filter, its limit and those of its tasks, its
-- queues and the fleet; none of a paused queue.
create or replace function among(p_ids uuid[], p_claim jsonb, p_tasks text[], p_queues text[], p_now bigint)
returns uuid[] language plpgsql volatile as $$
declare
    v_room jsonb;
    v_paused text[];
    v_limit bigint := (p_claim->>'limit')::bigint;
    v_found record;
begin
    if not exists (select from runs where id = any(p_ids) and task = any(p_tasks)) then
        return '{}';
    end if;
    v_room := room_of(p_claim);
    v_paused := paused_queues();
    select array_agg(r.id order by r.queue_place, r.order_key, r.due_at, r.id) as ids,
        array_agg(r.task order by r.queue_place, r.order_key, r.due_at, r.id) as tasks,
        array_agg(r.queue order by r.queue_place, r.order_key, r.due_at, r.id) as queues
    into v_found
    -- (`offset 0`: or else the planner starts from the index of all ready runs)
    from (
        select r.*, array_position(p_queues, r.queue) as queue_place, order_key(r) as order_key
        from unnest(p_ids) as u(id) join runs r on r.id = any(array[u.id]) offset 0
    ) r
    where r.state = 'pending' and not r.parked and r.due_at <= p_now and r.task = any(p_tasks)
        and (p_queues is null or r.queue = any(p_queues)) and r.queue <> all(v_paused);
    if v_found.ids is null then
        return '{}';
    elsif v_room = '{}' then
        return v_found.ids[:v_limit];
    end if;
    return array(
        select v_found.ids[n] from unnest(fitting(v_found.tasks, v_found.queues, v_room, v_limit)) n order by n);
end $$;

-- The queues of a ClaimSpec in order; null: every queue.
create or replace function queues_of(p_claim jsonb) returns text[]
language plpgsql volatile as $$
begin
    if jsonb_typeof(p_claim->'queues') = 'array' then
        return array(select jsonb_array_elements_text(p_claim->'queues'));
    end if;
    return null;
end $$;
