-- Named locks with a lease and a fencing token (G5, G7). A name's row is locked first, and judged in the next
-- statement: so no two see the same slot free.

-- acquire: one of p_slots of the name, if fewer have a live holder. Returns an Acquired.
create or replace function acquire(
    p_name text, p_owner text, p_lease_for bigint, p_slots bigint, p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_now bigint;
    v_token bigint;
    v_mine bigint;
    v_live bigint;
    v_until bigint;
begin
    v_token := locked_name(p_name);
    v_now := store_now(p_now);  -- by the clock as it is when it is our turn
    delete from holders where name = p_name and lease_until <= v_now;
    select count(*), min(lease_until), min(token) filter (where owner = p_owner) into v_live, v_until, v_mine
    from holders where name = p_name;
    if v_mine is not null then
        update holders set lease_until = v_now + p_lease_for where name = p_name and token = v_mine;
        -- It may have been released since we looked.
        if found then
            return acquired(v_now, v_mine, v_now + p_lease_for, v_live);
        end if;
        v_live := v_live - 1;
    end if;
    if v_live >= p_slots then
        return acquired(v_now, null, v_until, v_live);
    end if;
    v_token := greatest(v_token + 1, v_now);
    update locks set last_token = v_token where name = p_name;
    insert into holders (name, token, owner, since, lease_until)
    values (p_name, v_token, p_owner, v_now, v_now + p_lease_for);
    return acquired(v_now, v_token, v_now + p_lease_for, v_live + 1);
end $$;

create or replace function acquired(p_now bigint, p_token bigint, p_until bigint, p_holders bigint) returns json
language sql immutable as $$
    select json_build_object('now', p_now, 'token', p_token, 'lease_until', p_until, 'holders', p_holders)
$$;

-- The name's last token; its row, made if it was missing, is locked.
create or replace function locked_name(p_name text) returns bigint
language plpgsql volatile as $$
declare
    v_token bigint;
begin
    loop
        select last_token into v_token from locks where name = p_name for no key update;
        if found then
            return v_token;
        end if;
        insert into locks (name) values (p_name) on conflict do nothing;
    end loop;
end $$;

-- extend: the holder's lease ends at now + p_lease_for, also one that has expired and that nobody met. Returns that
-- instant; null if it is not held under this token.
create or replace function extend(p_name text, p_token bigint, p_lease_for bigint, p_now bigint default null)
returns bigint language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_until bigint := store_now(p_now) + p_lease_for;
begin
    update holders set lease_until = v_until where name = p_name and token = p_token;
    return case when found then v_until end;
end $$;

-- release: whether it was held under this token until now.
create or replace function release(p_name text, p_token bigint)
returns boolean language plpgsql volatile
set search_path from current
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    delete from holders where name = p_name and token = p_token;
    return found;
end $$;

-- list_locks: [LockRecord] of the live holders, by name and token.
create or replace function list_locks(p_now bigint default null)
returns json language plpgsql volatile
set search_path from current
as $$
declare
    v_now bigint := store_now(p_now);
begin
    return (
        select coalesce(json_agg(to_json(h) order by h.name, h.token), '[]') from holders h
        where h.lease_until > v_now);
end $$;

-- Names that nobody has held for a day, at most p_limit. A token is never below the store's clock, so the last one
-- of such a name need not be remembered.
create or replace function forget_locks(p_limit bigint, p_now bigint) returns void
language plpgsql volatile as $$
declare
    v_before bigint := p_now - 86400000000;
    v_names text[];
begin
    v_names := array(
        select k.name from locks k
        where k.last_token < v_before
            and not exists (select from holders h where h.name = k.name and h.lease_until >= v_before)
        order by k.last_token limit p_limit for update skip locked);
    if cardinality(v_names) = 0 then
        return;
    end if;
    delete from holders where name = any(v_names) and lease_until < v_before;
    delete from locks k
    where k.name = any(v_names) and not exists (select from holders h where h.name = k.name);
end $$;
