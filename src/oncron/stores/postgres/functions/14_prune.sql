-- prune: deletes at most p_limit ended runs, batches and gaps that are old, and the oldest of the failed and lost ones
-- but p_keep_failed (null: any number). Returns how many. Besides, as many at most of the takes that need not be
-- remembered, and of the locks that nobody has held for a day.
create or replace function prune(
    p_ended_before bigint, p_failed_before bigint, p_keep_failed bigint, p_limit bigint, p_now bigint)
returns bigint language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_left bigint;
    v_ids uuid[];
    v_gaps bigint := 0;
begin
    perform forget_takes(p_limit, v_now);
    perform forget_locks(p_limit, v_now);
    v_left := p_limit - prune_batches(p_failed_before, p_limit);
    -- A run ends after it was created, but for a clock that was set back: an hour more is looked through.
    v_ids := array(
        select r.id from runs r
        where r.ended_at is not null and r.created_at < greatest(p_ended_before, p_failed_before) + 3600000000
            and r.ended_at < case when r.state in ('failed', 'lost') then p_failed_before else p_ended_before end
            and (r.batch is null or (select true from batches b where b.id = r.batch limit 1) is null)
        order by r.created_at limit v_left for update skip locked);
    delete from runs where id = any(v_ids);
    v_left := v_left - cardinality(v_ids);
    if p_keep_failed is not null and v_left > 0 then
        v_left := v_left - prune_surplus(p_keep_failed, v_left);
    end if;
    if v_left > 0 then
        delete from gaps where id = any(array(
            select g.id from gaps g where greatest(g.last, g.created_at) < p_ended_before
            limit v_left for update skip locked));
        get diagnostics v_gaps = row_count;
    end if;
    return p_limit - v_left + v_gaps;
end $$;

-- As an older release calls it.
create or replace function prune(p_ended_before bigint, p_failed_before bigint, p_limit bigint)
returns bigint language plpgsql volatile
set search_path from current
as $$
begin
    return prune(p_ended_before, p_failed_before, null, p_limit, null);
end $$;

-- The failed and lost runs that are more than p_keep, from the newest: those of a batch on record count and stay.
create or replace function prune_surplus(p_keep bigint, p_limit bigint) returns bigint
language plpgsql volatile as $$
declare
    v_ids uuid[];
    v_pruned bigint;
begin
    v_ids := array(
        select s.id from (
            select r.id, r.batch from runs r where r.state in ('failed', 'lost')
            order by r.created_at desc, r.id desc offset p_keep
        ) s
        where s.batch is null or (select true from batches b where b.id = s.batch limit 1) is null
        limit p_limit);
    -- What is opened again at this moment is passed over.
    delete from runs where id = any(array(
        select r.id from runs r where r.id = any(v_ids) and r.state in ('failed', 'lost') for update skip locked));
    get diagnostics v_pruned = row_count;
    return v_pruned;
end $$;

-- Complete for long, without an open run, and in no batch on record.
create or replace function prune_batches(p_before bigint, p_limit bigint) returns bigint
language plpgsql volatile as $$
declare
    v_ids text[];
    v_pruned bigint;
begin
    v_ids := array(
        select b.id from batches b
        where b.completed_at < p_before
            and (b.parent is null or (select true from batches p where p.id = b.parent limit 1) is null)
            and not has_runs(b.id, '{pending,running}')
        order by b.completed_at limit p_limit for update skip locked);
    if cardinality(v_ids) = 0 then
        return 0;
    end if;
    -- Again, under the locks: a run of it may have been opened in between.
    delete from batches b where b.id = any(v_ids) and not has_runs(b.id, '{pending,running}');
    get diagnostics v_pruned = row_count;
    return v_pruned;
end $$;
