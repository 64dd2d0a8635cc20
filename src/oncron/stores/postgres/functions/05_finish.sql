-- finish: ends claims, by token (G5, G6).
--
-- p_outcomes  [Outcome], one per (run, token)
-- p_enqueue   {"run id token": [NewRun]}: written if that claim ends by this call and, but for those marked `then`,
--             succeeded. An older release names the run alone
-- returns     {now, odd}: `odd` are the FinishResults that do not follow from the outcome alone
create or replace function finish(p_outcomes jsonb, p_enqueue jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_ids uuid[] := array(select (o->>'run_id')::uuid from jsonb_array_elements(p_outcomes) o order by 1);
    v_wanted text[];
    v_locked text[];
    v_late text[];
    v_done uuid[];
    v_surprising uuid[];
    v_freeing uuid[];
    v_places text[];
    v_freed text[] := '{}';
    v_ended jsonb;
    v_batches text[];
begin
    v_wanted := array(select distinct schedule from runs where id = any(v_ids) and serial);
    if p_enqueue is not null then
        v_wanted := v_wanted || array(
            select n->>'schedule' from jsonb_each(p_enqueue) e cross join lateral jsonb_array_elements(e.value) n
            where n->>'schedule' is not null);
    end if;
    v_locked := lock_schedules(v_wanted);
    if p_enqueue is not null then
        v_batches := lock_open_batches(array(
            select n->>'batch' from jsonb_each(p_enqueue) e cross join lateral jsonb_array_elements(e.value) n
            where n->>'batch' is not null));
    end if;

    with done as (
        -- Held is: no outcome yet under this token. Not `state = 'running'`, which would lead the
        -- planner to the index of held runs instead of the key. What is set is worked out from the
        -- row as locked: a cancel request may have come between.
        update runs r
        set (outcome, state, ended_at, parked, worker, due_at, retry_delay, given_back, releases, result, error, reason,
             progress, checkpoint, log) = (
            select k.kind, case when again then 'pending' else k.kind end, case when again then null else v_now end,
                r.parked and again, case when again then null else r.worker end,
                case when again then v_now + o.delay else r.due_at end,
                case when again then o.retry_delay else r.retry_delay end,
                r.given_back + case when not again then 0
                    when k.kind = 'released' then (r.releases < 10)::int else (not o.spend_attempt)::int end,
                case k.kind when 'released' then r.releases + 1 when 'retry' then 0 else r.releases end,
                case when again then r.result else o.result end, o.error, o.reason,
                coalesce(o.progress, r.progress), coalesce(o.checkpoint, r.checkpoint), coalesce(o.log, r.log)
            from (select effective_kind(o.kind, r) as kind) k
            cross join lateral (select k.kind in ('retry', 'released')) x(again))
        from rows from (jsonb_to_recordset(p_outcomes) as (
            run_id uuid, token bigint, kind text, result text, error text, reason text, delay bigint,
            retry_delay bigint, spend_attempt boolean, progress text, checkpoint text, log text)) with ordinality as o(
            run_id, token, kind, result, error, reason, delay, retry_delay, spend_attempt, progress, checkpoint, log,
            place)
        where r.id = any(array[o.run_id]) and r.token = o.token and r.token > 0 and r.outcome is null
        returning r.id, r.token, r.schedule, r.serial, r.ended_at is null as again, r.outcome as kind, o.kind as asked,
            o.place
    )
    select coalesce(array_agg(id), '{}'), coalesce(array_agg(id) filter (where kind <> asked), '{}'),
        coalesce(array_agg(id) filter (where serial and not again), '{}'),
        coalesce(array_agg(distinct schedule) filter (where serial and not again), '{}'),
        jsonb_agg(json_build_array(id || ' ' || token, kind = 'succeeded') order by place)
            filter (where p_enqueue is not null and not again)
    into v_done, v_surprising, v_freeing, v_places, v_ended
    from done;

    if cardinality(v_places) > 0 then
        -- A run that became serial (a changed policy) between the look and the update: its schedule is
        -- locked late, which can meet another change of it; that deadlock is repeated by the caller.
        v_late := array(select p from unnest(v_places) p where p not in (select unnest(v_locked)));
        perform lock_schedules(v_late);
        v_freed := array(select f.schedule from fill_places(v_places) f where f.state = 'pending' and f.due_at <= v_now);
    end if;
    if v_ended is not null then
        perform enqueue_runs(followers(p_enqueue, v_ended, v_locked, v_batches), v_now);
    end if;

    if cardinality(v_done) = cardinality(v_ids) and cardinality(v_surprising) = 0 and cardinality(v_freed) = 0 then
        return json_build_object('now', v_now, 'odd', '[]'::json);
    end if;
    return json_build_object('now', v_now, 'odd', (
        select coalesce(json_agg(json_build_object('run_id', o.run_id, 'token', o.token, 'status', o.status,
            'state', o.state, 'due_at', o.due_at,
            'freed', o.status = 'recorded' and o.run_id in (select unnest(v_freeing))
                     and o.schedule in (select unnest(v_freed)))), '[]')
        from (
            select k.run_id, k.token, r.schedule,
                case when r.id is null then 'lease_lost'
                     when r.token = k.token and k.run_id in (select unnest(v_done)) then 'recorded'
                     when r.token = k.token and r.outcome <> 'reaped' then 'repeated'
                     else 'lease_lost' end as status,
                case when r.id is null then 'lost'
                     when r.token <> k.token or r.outcome is null or r.outcome = 'reaped' then r.state
                     when r.outcome in ('retry', 'released') then 'pending'
                     else r.outcome end as state,
                case when r.token = k.token and r.outcome in ('retry', 'released') then r.due_at end as due_at
            from jsonb_to_recordset(p_outcomes) as k(run_id uuid, token bigint)
            left join runs r on r.id = any(array[k.run_id])
        ) o
        where o.status <> 'recorded' or o.run_id in (select unnest(v_surprising)) or o.run_id in (select unnest(v_freeing))
    ));
end $$;

-- Cancel is sticky; a release that spends the last attempt has lost the run.
create or replace function effective_kind(p_asked text, r runs) returns text
language sql immutable as $$
    select case when p_asked not in ('retry', 'released') then p_asked
                when r.cancel_requested then 'cancelled'
                when p_asked = 'released' and r.releases >= 10 and r.attempt - r.given_back > r.retries then 'lost'
                else p_asked end
$$;

-- What is written after these ends, [["run id token", whether it succeeded]], of p_enqueue, in their order: not what
-- names a schedule or a batch that is not there.
create or replace function followers(p_enqueue jsonb, p_ended jsonb, p_schedules text[], p_batches text[]) returns jsonb
language plpgsql volatile as $$
begin
    return (
        select coalesce(jsonb_agg(n.run order by o.place, n.place), '[]')
        from jsonb_array_elements(p_ended) with ordinality as o(ended, place)
        cross join lateral jsonb_array_elements(
            coalesce(p_enqueue->(o.ended->>0), p_enqueue->split_part(o.ended->>0, ' ', 1), '[]'))
            with ordinality as n(run, place)
        where (o.ended->1 = 'true' or n.run ? 'then')
            and (n.run->>'schedule' is null or n.run->>'schedule' = any(p_schedules))
            and (n.run->>'batch' is null or n.run->>'batch' = any(p_batches)));
end $$;
