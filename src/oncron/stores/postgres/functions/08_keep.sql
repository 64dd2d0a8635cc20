-- heartbeat: one small write for all that a worker holds (G8).
--
-- p_worker   a WorkerRecord
-- p_held     [[run id, token]]
-- p_reports  [Report]
-- returns    a Pulse
create or replace function heartbeat(
    p_worker jsonb, p_lease_for bigint, p_held jsonb, p_reports jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_me text := p_worker->>'id';
    v_until bigint;
begin
    -- First, so that a reap that is about to take its runs is over before they are looked at.
    insert into workers as w (id, lease_until, record) values (v_me, v_now + p_lease_for, p_worker)
    on conflict (id) do update
    set lease_until = greatest(w.lease_until, excluded.lease_until), record = excluded.record, has_left = false
    returning lease_until into v_until;
    if jsonb_array_length(p_reports) > 0 then
        -- What another step holds locked at this moment goes without: progress comes again.
        update runs r
        set progress = coalesce(p.progress, r.progress), checkpoint = coalesce(p.checkpoint, r.checkpoint),
            log = coalesce(p.log, r.log)
        from jsonb_to_recordset(p_reports) as p(run_id uuid, token bigint, progress text, checkpoint text, log text)
        where r.id = any(array[p.run_id]) and r.id = any(array(
            select f.id from runs f where f.id in (select (q->>'run_id')::uuid from jsonb_array_elements(p_reports) q)
            order by f.id for no key update skip locked))
            and r.token = p.token and r.worker = v_me and r.outcome is null;
    end if;
    return json_build_object(
        'now', v_now, 'lease_until', v_until,
        'lost', coalesce((
            select json_agg(h->>0) from jsonb_array_elements(p_held) h
            where not exists (
                select from runs r where r.id = any(array[(h->>0)::uuid]) and r.token = (h->>1)::bigint and r.worker = v_me
                    and r.outcome is null)), '[]'),
        'cancel', coalesce((
            select json_agg(h->>0) from jsonb_array_elements(p_held) h join runs r on r.id = any(array[(h->>0)::uuid])
            where r.token = (h->>1)::bigint and r.worker = v_me and r.outcome is null and r.cancel_requested), '[]'),
        'strays', coalesce((
            select json_agg(to_json(r)) from runs r
            where r.worker = v_me and r.state = 'running'
                and (r.id, r.token) not in (
                    select (h->>0)::uuid, (h->>1)::bigint from jsonb_array_elements(p_held) h)), '[]'));
end $$;

-- leave: forgets a worker that stopped; while something of its is held, its row stays, unlisted.
create or replace function leave(p_worker text)
returns void language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    update workers set has_left = true where id = p_worker;
    delete from workers w
    where w.id = p_worker and not exists (select from runs r where r.worker = w.id and r.state = 'running');
end $$;

-- reap: takes runs from workers whose lease has expired (G8), and drops workers that were silent for
-- a minute and hold nothing. Everything is locked with skip locked: reap waits for nobody for long.
-- Returns {runs, workers}.
create or replace function reap(p_limit bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_workers text[];
    v_locked text[];
    v_schedules text[];
    v_ids uuid[];
    v_places text[];
    v_runs json;
    v_dropped json;
begin
    -- Locked, an expired worker cannot heartbeat until we are done; one whose heartbeat is in flight
    -- is passed over; one without a row has no lease.
    v_workers := array(select id from workers where lease_until <= v_now order by id for update skip locked);
    v_ids := array(
        select h.id from (
            select r.id from runs r
            where r.state = 'running'
                and (r.worker = any(v_workers) or not exists (select from workers w where w.id = r.worker)) offset 0
        ) h
        order by h.id limit p_limit);
    if cardinality(v_ids) > 0 then
        v_schedules := array(select distinct schedule from runs where id = any(v_ids) and schedule is not null);
        -- Who holds a schedule holds it for one step, so it is worth asking again; but a reap does not
        -- stand still behind somebody's long transaction.
        for i in 1 .. 20 loop
            v_locked := array(
                select name from cursors where name = any(v_schedules) order by name for no key update skip locked);
            exit when cardinality(v_locked) = cardinality(v_schedules);
            perform pg_sleep(0.005);
        end loop;
        v_ids := array(
            select r.id from runs r
            where r.id = any(v_ids) and (r.schedule is null or r.schedule in (select unnest(v_locked)))
                and r.state = 'running'
                and (r.worker = any(v_workers) or not exists (select from workers w where w.id = r.worker))
            order by r.id for no key update skip locked);
        with taken as (
            update runs r
            set (outcome, state, ended_at, parked, worker, releases, due_at, retry_delay, reason) = (
                select 'reaped', k.state, case when again then null else v_now end, r.parked and again,
                    case when again then null else r.worker end, case when again then 0 else r.releases end,
                    case when again then v_now + r.retry_delay else r.due_at end,
                    case when again then greatest(r.retry_delay, least(2 * r.retry_delay, 3600000000))
                        else r.retry_delay end,
                    case when again then r.reason else 'its worker''s lease expired' end
                from (select case when r.cancel_requested then 'cancelled'
                             when r.attempt - r.given_back > r.retries then 'lost' else 'pending' end as state) k
                cross join lateral (select k.state = 'pending') x(again))
            where r.id = any(v_ids) and r.outcome is null and r.token > 0
            returning r.id, r.schedule, r.serial, r.ended_at, to_json(r) as run
        )
        select json_agg(run), coalesce(array_agg(distinct schedule) filter (where serial and ended_at is not null), '{}')
        into v_runs, v_places from taken;
        perform fill_places(v_places);
    end if;
    with gone as (
        delete from workers w
        where w.id = any(array(
            select d.id from workers d where d.has_left or d.lease_until < v_now - 60000000
            order by d.id for update skip locked))
            and not exists (select from runs r where r.worker = w.id and r.state = 'running')
        returning w.id, w.has_left
    )
    select json_agg(id order by id) filter (where not has_left) into v_dropped from gone;
    return json_build_object('runs', coalesce(v_runs, '[]'), 'workers', coalesce(v_dropped, '[]'));
end $$;

-- poll: the one idle question (G9). Writes and locks nothing. Returns a Poll.
create or replace function poll(p_tasks jsonb, p_queues jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_lanes record := ready_lanes(
        array(select jsonb_array_elements_text(p_tasks)), queues_of(jsonb_build_object('queues', p_queues)));
begin
    return json_build_object(
        'now', v_now,
        'version', (select version from meta),
        'next_tick_at', (select next_at from cursors where next_at is not null order by next_at limit 1),
        'next_due_at', next_due(v_lanes.tasks, v_lanes.queues, v_lanes.priorities, '{}'),
        'workers', (
            select coalesce(json_agg(w.id order by w.id), '[]') from workers w
            where not w.has_left and w.lease_until + 20000000 > v_now
                and (w.record::jsonb)->'roles' ? 'scheduler'),
        'expired', exists (
                select from runs r where r.state = 'running' and not exists (
                    select from workers w where w.id = r.worker and w.lease_until > v_now))
            or exists (
                select from workers d where not d.has_left and d.lease_until < v_now - 60000000
                    and not exists (select from runs r where r.worker = d.id and r.state = 'running')));
end $$;

-- due: active schedules whose next tick is at or before the horizon, in pages. Lock-free, index-only.
create or replace function due(
    p_horizon bigint, p_after_at bigint, p_after_name text, p_exclude jsonb, p_limit bigint)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_exclude text[] := array(select jsonb_array_elements_text(p_exclude));
begin
    if p_after_at is null then
        p_after_at := -9223372036854775808;
        p_after_name := '';
    end if;
    return (
        select coalesce(json_agg(json_build_object('name', d.name, 'revision', d.revision, 'cursor', d.cursor,
            'next_at', d.next_at)), '[]')
        from (
            select c.name, c.revision, c.cursor, c.next_at from cursors c
            where c.next_at <= p_horizon and (c.next_at, c.name) > (p_after_at, p_after_name) and c.name <> all(v_exclude)
            order by c.next_at, c.name limit p_limit
        ) d
    );
end $$;
