-- declare: definitions, pause, resume, dormancy, removal (G3): one compare-and-set a change.
--
-- p_changes  [{name, definition (text), task, args, queue, priority, retries, retry_delay, timeout,
--            overlap, unique_key, run_limit, status, note, seen_revision, seen_cursor, cursor, next_at, gaps,
--            digest, guard}]
-- returns    {now, odd}: [{place, changed, record}] of all but the new rows that were written
create or replace function declare_schedules(p_changes jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_new text[];
    v_changed bigint;
    v_odd json[] := '{}';
    c record;
    v_done boolean;
begin
    with written as (
        insert into cursors (name, status, revision, cursor, next_at, run_limit)
        select x.name, x.status, 1, x.cursor, case x.status when 'active' then x.next_at end, x.run_limit
        from changes_of(p_changes) x where x.seen_revision is null and x.cursor <= v_now order by x.name, x.place
        on conflict (name) do nothing returning name
    )
    select coalesce(array_agg(name), '{}') into v_new from written;
    v_changed := cardinality(v_new);
    if v_changed > 0 then
        -- A name has a row in both tables or in neither.
        insert into schedules (name, definition, task, args, queue, priority, retries, retry_delay, timeout, overlap,
            unique_key, run_limit, created_at, changed_at, note, digest, guard)
        select x.name, x.definition, x.task, x.args, x.queue, x.priority, x.retries, x.retry_delay, x.timeout, x.overlap,
            x.unique_key, x.run_limit, v_now, v_now, x.note, x.digest, x.guard
        from changes_of(p_changes) x where x.seen_revision is null and x.cursor <= v_now order by x.name, x.place
        on conflict (name) do nothing;
    end if;
    if v_changed < jsonb_array_length(p_changes) or jsonb_path_exists(p_changes, '$[*].gaps[*]') then
        for c in select * from changes_of(p_changes) x order by x.name, x.place loop
            if c.seen_revision is null then
                v_done := c.name in (select unnest(v_new)) and c.place = c.first_place;
                if v_done then
                    perform record_gaps(c.name, c.gaps, c.seen_cursor, v_now);
                    continue;
                end if;
            else
                v_done := change_schedule(c.name, p_changes->(c.place::int - 1), v_now);
                v_changed := v_changed + v_done::int;
            end if;
            v_odd := v_odd || json_build_object('place', c.place, 'changed', v_done, 'record',
                (select to_json(s) from schedule_rows s where s.name = c.name));
        end loop;
    end if;
    if v_changed > 0 then
        update meta set version = version + v_changed;
    end if;
    return json_build_object('now', v_now, 'odd', array_to_json(v_odd));
end $$;

create or replace function changes_of(p_changes jsonb)
returns table (place bigint, first_place bigint, name text, definition text, task text, args text, queue text,
    priority bigint, retries bigint, retry_delay bigint, timeout bigint, overlap text, unique_key text, run_limit bigint,
    status text, note text, seen_revision bigint, seen_cursor bigint, cursor bigint, next_at bigint, gaps jsonb,
    digest text, guard text)
language sql stable as $$
    select c.place, min(c.place) over (partition by c.change->>'name'), x.*
    from jsonb_array_elements(p_changes) with ordinality as c(change, place)
    cross join lateral jsonb_to_record(c.change) as x(
        name text, definition text, task text, args text, queue text, priority bigint, retries bigint,
        retry_delay bigint, timeout bigint, overlap text, unique_key text, run_limit bigint, status text, note text,
        seen_revision bigint, seen_cursor bigint, cursor bigint, next_at bigint, gaps jsonb, digest text,
        guard text)
$$;

-- One change of a row that exists, if it is as seen.
create or replace function change_schedule(p_name text, p_change jsonb, p_now bigint) returns boolean
language plpgsql volatile as $$
declare
    c record;
    v_overlap text;
begin
    select * into c from changes_of(jsonb_build_array(p_change));
    update cursors k
    set status = c.status, revision = k.revision + 1, cursor = greatest(k.cursor, c.cursor),
        next_at = case c.status when 'active' then c.next_at end, run_limit = c.run_limit,
        fire_id = null, fire_result = null
    where k.name = p_name and k.revision = c.seen_revision and k.cursor = c.seen_cursor
        and (c.cursor <= p_now or c.cursor <= k.cursor);
    if not found then
        return false;
    end if;
    select overlap into v_overlap from schedules where name = p_name;
    update schedules
    set definition = c.definition, task = c.task, args = c.args, queue = c.queue, priority = c.priority,
        retries = c.retries, retry_delay = c.retry_delay, timeout = c.timeout, overlap = c.overlap,
        unique_key = c.unique_key, run_limit = c.run_limit, changed_at = p_now, note = c.note, digest = c.digest,
        guard = c.guard, previous = case when digest = c.digest then previous else digest end
    where name = p_name;
    perform record_gaps(p_name, c.gaps, c.seen_cursor, p_now);
    if v_overlap <> c.overlap then
        perform repark(p_name, c.overlap <> 'allow');
    end if;
    return true;
end $$;

-- The open runs of a schedule take their places under the policy that it has now: one that runs, else
-- one that has started, else the first in order is the head.
create or replace function repark(p_schedule text, p_serial boolean) returns void
language plpgsql volatile as $$
declare
    v_open uuid[];
    v_head uuid;
begin
    -- Stage by stage, each from its own index: the ended runs are not looked at.
    v_open := array(
        select id from runs where state = 'pending' and not parked and schedule = p_schedule and backfill is null
        union all select id from runs where parked and schedule = p_schedule and backfill is null
        union all
        select id from runs where state = 'running' and not parked and schedule = p_schedule and backfill is null);
    v_open := array(
        select r.id from runs r
        where r.id = any(v_open) and r.state in ('pending', 'running') order by r.id for no key update);
    select r.id into v_head from unnest(v_open) as u(id) join runs r on r.id = any(array[u.id])
    order by r.state <> 'running', r.attempt = 0, coalesce(r.tick, r.created_at), r.created_at, r.id limit 1;
    update runs r set serial = p_serial, parked = p_serial and r.id <> v_head where r.id = any(v_open);
end $$;

-- register: a replica declares this set of schedules now. Without names (null): false if the set is not known.
create or replace function register(p_set text, p_names jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
as $$
begin
    if jsonb_typeof(p_names) = 'array' then
        insert into sets (id, names, noted_at) values (p_set, p_names, store_now(p_now))
        on conflict (id) do update set names = excluded.names, noted_at = excluded.noted_at;
        return 'true';
    end if;
    update sets set noted_at = store_now(p_now) where id = p_set;
    return to_json(found);
end $$;

-- unheld: active schedules of code that changed before the instant and are in no set noted since. [name]
create or replace function unheld(p_before bigint, p_limit bigint)
returns json language plpgsql volatile
set search_path from current
as $$
begin
    delete from sets where noted_at < p_before;
    return (
        select coalesce(json_agg(name order by name), '[]') from (
            select s.name from schedules s join cursors c on c.name = s.name
            where c.status = 'active' and s.changed_at < p_before and s.definition::json->>'origin' is distinct from 'api'
                and s.name not in (select jsonb_array_elements_text(names) from sets)
            order by s.name limit p_limit
        ) f);
end $$;
