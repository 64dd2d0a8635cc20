-- Limiters: what `stores/_limits.py` says, under the limiter's row. That row is written first, so that takes of one
-- limiter are judged one after the other, and each sees those before it.

-- take: grants p_take (a Take) now, and counts it, if its rule allows it. Returns a Taken.
create or replace function take(p_take jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint;
    v_name text := p_take->>'limiter';
    v_cost bigint := p_take->>'cost';
    v_rule jsonb := p_take->'rule';
    v_per bigint := v_rule->>'per';
    v_empty_at numeric;
    v record;
begin
    insert into limiters as l (name, kind, amount, per)
    values (v_name, v_rule->>'kind', (v_rule->>'amount')::bigint, v_per)
    on conflict (name) do update set kind = excluded.kind, amount = excluded.amount, per = excluded.per
    returning empty_at into v_empty_at;
    v_now := store_now(p_now);  -- by the clock as it is when it is our turn
    delete from takes where limiter = v_name and until <= v_now;
    if exists (select from takes where limiter = v_name and nonce = p_take->>'nonce') then
        return said(v_name, v_rule, v_empty_at, v_now);
    end if;
    v := judged(v_name, v_rule, v_empty_at, v_cost, v_now);
    if v.granted then
        insert into takes (limiter, nonce, at, cost, until, empty_at)
        values (v_name, p_take->>'nonce', v_now, v_cost,
            -- A minute longer than it counts, as in `remembered_until`.
            v_now + greatest(v_per + 60000000, (p_take->>'keep_for')::bigint), v.empty_at);
        if v.empty_at <> v_empty_at then
            update limiters set empty_at = v.empty_at where name = v_name;
        end if;
    elsif v_empty_at <= v_now and not exists (select from takes where limiter = v_name) then
        delete from limiters where name = v_name;  -- more than it ever grants: nothing to remember
    end if;
    return json_build_object('granted', v.granted, 'now', v_now, 'used', v.used, 'retry_in', v.retry_in);
end $$;

-- settle: the true cost in the place of the estimate. Returns a Taken, or null if the nonce is not remembered.
create or replace function settle(p_limiter text, p_nonce text, p_cost bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint;
    v_later numeric := 0;
    l limiters;
    t takes;
begin
    select * into l from limiters where name = p_limiter for no key update;
    v_now := store_now(p_now);
    select * into t from takes where limiter = p_limiter and nonce = p_nonce;
    if l.name is null or t.nonce is null then
        return null;
    end if;
    if l.kind = 'bucket' then
        -- What it has drained by now is not given back: others came after it.
        v_later := greatest(poured(l.amount, l.per, p_cost) - poured(l.amount, l.per, t.cost),
            -greatest(0, t.empty_at - v_now));
        update limiters set empty_at = empty_at + v_later where name = p_limiter;
    end if;
    update takes set cost = p_cost, empty_at = empty_at + v_later where limiter = p_limiter and nonce = p_nonce;
    return said(p_limiter, to_jsonb(l), l.empty_at + v_later, v_now);
end $$;

-- taken: what the limiter says of a take of 1 by this rule, without taking it. Returns a Taken.
create or replace function taken(p_limiter text, p_rule jsonb, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint := store_now(p_now);
    v_empty_at numeric := coalesce((select empty_at from limiters where name = p_limiter), 0);
    v record := judged(p_limiter, p_rule, v_empty_at, 1, v_now);
begin
    return json_build_object('granted', v.granted, 'now', v_now, 'retry_in', v.retry_in,
        'used', said(p_limiter, p_rule, v_empty_at, v_now)->'used');
end $$;

-- What is used, by a take of nothing.
create or replace function said(p_limiter text, p_rule jsonb, p_empty_at numeric, p_now bigint) returns json
language plpgsql volatile as $$
begin
    return json_build_object('granted', true, 'now', p_now,
        'used', (judged(p_limiter, p_rule, p_empty_at, 0, p_now)).used);
end $$;

-- Whether the cost fits now; what is used after the step; how long until it fits; when the bucket is empty then.
create or replace function judged(
    p_limiter text, p_rule jsonb, p_empty_at numeric, p_cost bigint, p_now bigint,
    out granted boolean, out used numeric, out retry_in numeric, out empty_at numeric)
language plpgsql volatile as $$
declare
    v_amount bigint := p_rule->>'amount';
    v_per bigint := p_rule->>'per';
    v_aligned boolean := p_rule->>'kind' = 'window';
    v_since bigint := case when v_aligned then p_now - p_now % v_per - 1 else p_now - v_per end;
    v_latest numeric;
begin
    retry_in := 0;
    if p_rule->>'kind' = 'bucket' then
        empty_at := greatest(p_empty_at, p_now) + poured(v_amount, v_per, p_cost);
        v_latest := p_now + v_per + rounded(v_amount, v_per);
        granted := empty_at <= v_latest;
        if not granted then
            retry_in := empty_at - v_latest;
            empty_at := p_empty_at;
        end if;
        used := ceil_div(greatest(0, empty_at - p_now - rounded(v_amount, v_per)) * v_amount, v_per);
        return;
    end if;
    empty_at := p_empty_at;
    used := coalesce((select sum(t.cost) from takes t where t.limiter = p_limiter and t.at > v_since), 0);
    granted := used + p_cost <= v_amount;
    if granted then
        used := used + p_cost;
        return;
    end if;
    -- Until so many of the oldest count no more that it fits; if they never suffice, for one period.
    retry_in := coalesce((
        select s.at + v_per - case when v_aligned then s.at % v_per else 0 end - p_now from (
            select t.at, sum(t.cost) over (order by t.at, t.cost, t.nonce) as gone from takes t
            where t.limiter = p_limiter and t.at > v_since
        ) s
        where s.gone >= used + p_cost - v_amount order by s.at limit 1), v_per);
end $$;

-- The quotient of two that are not negative, rounded up.
create or replace function ceil_div(p_over numeric, p_under numeric) returns numeric
language sql immutable as $$ select div(p_over + p_under - 1, p_under) $$;

-- How much later the bucket is empty for a take of that cost.
create or replace function poured(p_amount bigint, p_per bigint, p_cost bigint) returns numeric
language sql immutable as $$ select ceil_div(p_cost::numeric * p_per, p_amount) $$;

-- How much later than its amount takes a full bucket may be empty, because each take was rounded up.
create or replace function rounded(p_amount bigint, p_per bigint) returns numeric
language sql immutable as $$
    select case when p_per % p_amount = 0 then 0 else least(p_amount, poured(p_amount, p_per, 1)) - 1 end
$$;

-- Takes that need not be remembered any more, and limiters that say nothing without them; at most p_limit of each.
create or replace function forget_takes(p_limit bigint, p_now bigint) returns void
language plpgsql volatile as $$
declare
    v_names text[];
begin
    v_names := array(
        select distinct o.limiter from (
            select t.limiter from takes t where t.until <= p_now order by t.until limit p_limit
        ) o);
    -- A bucket may be emptied long after its takes are forgotten.
    v_names := v_names || array(
        select l.name from limiters l where l.empty_at > 0 and l.empty_at <= p_now order by l.empty_at limit p_limit);
    if cardinality(v_names) = 0 then
        return;
    end if;
    -- Whoever takes holds the limiter's row: those are passed over.
    v_names := array(select l.name from limiters l where l.name = any(v_names) order by l.name for update skip locked);
    delete from takes t where t.limiter = any(v_names) and t.until <= p_now;
    delete from limiters l
    where l.name = any(v_names) and l.empty_at <= p_now and not exists (select from takes t where t.limiter = l.name);
end $$;
