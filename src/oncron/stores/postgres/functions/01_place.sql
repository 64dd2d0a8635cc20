-- What several steps share. Functions without settings of their own run under those of their caller.
--
-- Plans are cached, and the first may be made while the tables are empty or their statistics old. Then
-- the planner finds it cheaper to read a whole index than to look rows up one by one, and stays with
-- that. So look-ups are written `key = any(array[x])`, here and in all functions: of that the planner
-- can make nothing but an index scan on the key, driven by x; no merge, no hash, no other order. For
-- the same reason what is sorted by a key is first found in a subquery that ends in `offset 0`.

-- The store's clock in microseconds, or the instant that a test gives.
create or replace function store_now(p_now bigint) returns bigint
language sql volatile as $$
    select coalesce(p_now, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
$$;

-- A schedule's row as ScheduleRecord reads it. A view, so that its plan is the caller's.
create or replace view schedule_rows as
select c.name, s.definition::json as definition, c.status, c.revision, c.cursor, c.next_at, c.last_token,
       c.created_count, s.created_at, s.changed_at, s.note, s.previous
from cursors c join schedules s on s.name = any(array[c.name]);

-- Locks schedules in the one order that everybody keeps: by name. Returns those that exist.
create or replace function lock_schedules(p_names text[]) returns text[]
language plpgsql volatile as $$
begin
    if cardinality(p_names) = 0 then
        return p_names;
    end if;
    return array(select name from cursors where name = any(p_names) order by name for no key update);
end $$;

-- How a new run meets the place of its schedule (G10), whose row the caller holds locked since an
-- earlier statement. Writes nothing.
--   in_the_way     the run because of which the new one is refused, or null
--   superseded     what is to end as skipped, so that the new one waits instead
--   asked_to_stop  the head that is to stop, or null
--   parked         whether the new one waits
create or replace function enter(
    p_schedule text, p_overlap text, p_catchup boolean,
    out in_the_way uuid, out superseded uuid[], out asked_to_stop uuid, out parked boolean)
language plpgsql volatile as $$
declare
    v_head record;
    v_first uuid;
begin
    superseded := '{}';
    parked := false;
    if p_overlap = 'allow' then
        return;
    end if;
    select r.id, r.state, r.cancel_requested into v_head
    from runs r where r.schedule = p_schedule and r.serial and not r.parked and r.state in ('pending', 'running');
    if not found then
        return;
    end if;
    parked := true;
    if p_catchup or p_overlap = 'queue' then
        return;
    end if;
    if p_overlap = 'skip' then
        in_the_way := v_head.id;
        return;
    end if;
    -- Never one that has started, and none of a catch-up: those were all meant to run.
    select r.id into v_first
    from runs r where r.schedule = p_schedule and r.parked and (r.state = 'running' or r.attempt > 0 or r.is_catchup)
    order by coalesce(r.tick, r.created_at), r.created_at, r.id limit 1;
    if found then
        in_the_way := v_first;
        return;
    end if;
    superseded := array(select r.id from runs r where r.schedule = p_schedule and r.parked
                        order by r.line, r.created_at, r.id);
    if p_overlap = 'cancel' and v_head.state = 'running' and not v_head.cancel_requested then
        asked_to_stop := v_head.id;
    end if;
end $$;

-- Does what `enter` said, once the new run is written.
create or replace function make_room(p_schedule text, p_superseded uuid[], p_asked_to_stop uuid, p_now bigint)
returns void language plpgsql volatile as $$
declare
    v_ticks bigint;
begin
    if cardinality(p_superseded) > 0 then
        with gone as (
            update runs set state = 'skipped', ended_at = p_now, parked = false, reason = 'superseded'
            where id = any(p_superseded) returning tick
        )
        select count(tick) into v_ticks from gone;
        -- A superseded run no longer counts for its schedule's limit.
        update cursors set created_count = created_count - v_ticks where name = p_schedule and v_ticks > 0;
    end if;
    if p_asked_to_stop is not null then
        update runs set cancel_requested = true where id = p_asked_to_stop;
    end if;
end $$;

-- Unparks the next in line of every schedule whose place is free. The caller holds their rows
-- locked. Returns what was unparked.
create or replace function fill_places(p_schedules text[]) returns table (schedule text, state text, due_at bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
    v_next uuid[];
begin
    v_next := array(
        select n.id
        from unnest(p_schedules) as s(name)
        cross join lateral (
            select r.id from runs r where r.schedule = s.name and r.parked order by r.line, r.created_at, r.id limit 1
        ) n
        where (
            select true from runs h
            where h.schedule = s.name and h.serial and not h.parked and h.state in ('pending', 'running') limit 1
        ) is null);
    if cardinality(v_next) > 0 then
        return query
            update runs r set parked = false where r.id = any(v_next) returning r.schedule, r.state, r.due_at;
    end if;
end $$;

-- Extends the schedule's newest gap if it has the same reason and ends where the cursor was seen,
-- else adds one (G11). The caller holds the schedule's row.
create or replace function record_gap(
    p_schedule text, p_first bigint, p_last bigint, p_count bigint, p_reason text, p_at_least boolean, p_detail text,
    p_seen bigint, p_now bigint)
returns void language plpgsql volatile as $$
declare
    v_newest record;
begin
    select g.id, g.reason, g.last into v_newest from gaps g where g.schedule = p_schedule order by g.id desc limit 1;
    if found and v_newest.reason = p_reason and v_newest.last = p_seen then
        update gaps set last = p_last, count = count + p_count, at_least = at_least or p_at_least
        where id = v_newest.id;
    else
        insert into gaps (schedule, first, last, count, reason, at_least, detail, created_at)
        values (p_schedule, p_first, p_last, p_count, p_reason, p_at_least, p_detail, p_now);
    end if;
end $$;

-- The gaps of one plan or change, a JSON array, in order.
create or replace function record_gaps(p_schedule text, p_gaps jsonb, p_seen bigint, p_now bigint)
returns void language plpgsql volatile as $$
declare
    g record;
begin
    for g in
        select * from jsonb_to_recordset(p_gaps)
            as x(first bigint, last bigint, count bigint, reason text, at_least boolean, detail text)
    loop
        perform record_gap(p_schedule, g.first, g.last, g.count, g.reason, g.at_least, g.detail, p_seen, p_now);
    end loop;
end $$;
