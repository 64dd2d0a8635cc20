-- Reads for CLI, web and metrics. Each returns a JSON array of records.

-- p_names: [name] or null; a page of them by name, after p_after, with the tag if there is one.
create or replace function list_schedules(p_names jsonb, p_tag text, p_after text, p_limit bigint)
returns json language plpgsql stable
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_page text[];
begin
    if jsonb_typeof(p_names) = 'array' then
        -- Looked up one by one: a thousand names compared with each of a million rows take minutes.
        v_page := array(
            select f.name from (select distinct jsonb_array_elements_text(p_names)) as n(name)
            cross join lateral (select s.name, s.definition from schedules s where s.name = any(array[n.name]) offset 0) f
            where f.name > coalesce(p_after, '') and (p_tag is null or f.definition::jsonb->'tags' ? p_tag)
            order by f.name limit p_limit);
    else
        v_page := array(
            select s.name from schedules s
            where s.name > coalesce(p_after, '') and (p_tag is null or s.definition::jsonb->'tags' ? p_tag)
            order by s.name limit p_limit);
    end if;
    return (select coalesce(json_agg(to_json(s) order by s.name), '[]') from schedule_rows s where s.name = any(v_page));
end $$;

-- As an older release calls it.
create or replace function list_schedules(p_names jsonb)
returns json language plpgsql stable
set search_path from current
as $$
begin
    return list_schedules(p_names, null, null, null);
end $$;

create or replace function list_gaps(p_schedule text, p_since bigint, p_until bigint, p_limit bigint)
returns json language plpgsql stable
set search_path from current
as $$
begin
    return (
        select coalesce(json_agg(to_json(f)), '[]') from (
            select g.* from gaps g
            where g.schedule = p_schedule and (p_since is null or g.last >= p_since)
                and (p_until is null or g.first <= p_until)
            order by g.id desc limit p_limit
        ) f);
end $$;

create or replace function get_runs(p_ids jsonb)
returns json language plpgsql stable
set search_path from current
as $$
begin
    return (
        select coalesce(json_agg(to_json(r)), '[]') from runs r
        where r.id = any(array(select t::uuid from jsonb_array_elements_text(p_ids) t)));
end $$;

-- p_where is a RunFilter. Newest first by (created_at, id). Each stage of life is read from its own index;
-- that of the ended, who are many, has this order.
create or replace function list_runs(p_where jsonb)
returns json language plpgsql stable
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    w record;
    v_created_at bigint := 9223372036854775807;
    v_id uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    v_ids uuid[];
begin
    select * into w from jsonb_to_record(p_where)
        as x(schedule text, task text, state text, queue text, batch text, since bigint, before uuid, "limit" bigint);
    if w.before is not null then
        select r.created_at, r.id into v_created_at, v_id from runs r where r.id = w.before;
        if not found then
            return '[]';
        end if;
    end if;
    if w.batch is not null then
        return runs_of_batch(p_where, v_created_at, v_id);
    end if;
    v_ids := array(
        select id from (
            (select r.created_at, r.id from runs r
             where r.ended_at is not null and (w.state is null or w.state not in ('pending', 'running'))
                and (r.created_at, r.id) < (v_created_at, v_id)
                and r.created_at >= coalesce(w.since, -9223372036854775808)
                and (w.schedule is null or r.schedule = w.schedule) and (w.task is null or r.task = w.task)
                and (w.queue is null or r.queue = w.queue) and (w.state is null or r.state = w.state)
             order by r.created_at desc, r.id desc limit w."limit")
            union all
            (select r.created_at, r.id from runs r
             where r.state = 'pending' and not r.parked and (w.state is null or w.state = 'pending')
                and (r.created_at, r.id) < (v_created_at, v_id) and r.created_at >= coalesce(w.since, r.created_at)
                and (w.schedule is null or r.schedule = w.schedule) and (w.task is null or r.task = w.task)
                and (w.queue is null or r.queue = w.queue)
             order by r.created_at desc, r.id desc limit w."limit")
            union all
            (select r.created_at, r.id from runs r
             where r.parked and r.state = 'pending' and (w.state is null or w.state = 'pending')
                and (r.created_at, r.id) < (v_created_at, v_id) and r.created_at >= coalesce(w.since, r.created_at)
                and (w.schedule is null or r.schedule = w.schedule) and (w.task is null or r.task = w.task)
                and (w.queue is null or r.queue = w.queue)
             order by r.created_at desc, r.id desc limit w."limit")
            union all
            (select r.created_at, r.id from runs r
             where r.state = 'running' and (w.state is null or w.state = 'running')
                and (r.created_at, r.id) < (v_created_at, v_id) and r.created_at >= coalesce(w.since, r.created_at)
                and (w.schedule is null or r.schedule = w.schedule) and (w.task is null or r.task = w.task)
                and (w.queue is null or r.queue = w.queue)
             order by r.created_at desc, r.id desc limit w."limit")
        ) stages
        order by created_at desc, id desc limit w."limit");
    return (
        select coalesce(json_agg(to_json(r) order by r.created_at desc, r.id desc), '[]') from runs r
        where r.id = any(v_ids));
end $$;

-- The same of one batch, older than the mark: a batch has its own index.
create or replace function runs_of_batch(p_where jsonb, p_created_at bigint, p_id uuid) returns json
language plpgsql stable as $$
declare
    w record;
begin
    select * into w from jsonb_to_record(p_where)
        as x(schedule text, task text, state text, queue text, batch text, since bigint, "limit" bigint);
    return (
        select coalesce(json_agg(to_json(p) order by p.created_at desc, p.id desc), '[]') from (
            select r.* from (select b.* from runs b where b.batch = w.batch offset 0) r
            where (r.created_at, r.id) < (p_created_at, p_id) and (w.since is null or r.created_at >= w.since)
                and (w.schedule is null or r.schedule = w.schedule) and (w.task is null or r.task = w.task)
                and (w.queue is null or r.queue = w.queue) and (w.state is null or r.state = w.state)
            order by r.created_at desc, r.id desc limit w."limit"
        ) p);
end $$;

create or replace function list_workers()
returns json language plpgsql stable
set search_path from current
as $$
begin
    return (
        select coalesce(json_agg(w.record::jsonb || jsonb_build_object('lease_until', w.lease_until) order by w.id), '[]')
        from workers w where not w.has_left);
end $$;

-- Stats: counts by status and state.
create or replace function read_stats(p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
as $$
declare
    v_now bigint := store_now(p_now);
begin
    return json_build_object(
        'now', v_now,
        'schedules', (select coalesce(json_object_agg(status, n), '{}')
                      from (select status, count(*) as n from cursors group by status) c),
        'runs', (select coalesce(json_object_agg(state, n), '{}')
                 from (select state, count(*) as n from runs group by state) r),
        'overdue', (select count(*) from cursors where status = 'active' and next_at < v_now - 60000000),
        'workers', list_workers());
end $$;
