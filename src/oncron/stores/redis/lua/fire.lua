-- include: leases gaps guards
--
-- fire: each schedule's cursor passes its due ticks, once (G1, G2, G3, G11).
--
-- args     plans    [{name, revision, seen, cursor, next_at (text), zones, ticks [{run_id, tick, due_at,
--                   is_catchup, missed_count}] by tick, gaps [Gap]}]: all ticks and gaps in (seen, cursor]
--          fire_id, claim (a ClaimSpec)
-- returns  {now, lease_until, odd}, then the leased runs' records in claim order. `odd` [{place, outcome,
--          created, skipped, reason, superseded, cancelled}] are the results of plans that did not simply
--          become as many runs as they have ticks

local odd, created, held = {}, {}, {}
local newest_zones

-- Whether a live scheduler knows the zones better than the plan.
local function is_outdone(zones)
    if not zones then
        return false
    end
    if newest_zones == nil then
        newest_zones = ''
        for _, version in ipairs(call('ZRANGEBYSCORE', NS .. 'zones', '(' .. int(now), '+inf')) do
            if is_before(newest_zones, version) then
                newest_zones = version
            end
        end
    end
    return is_before(zones, newest_zones)
end

-- The template that becomes a run is used up by it.
local function tick_run(template, row, tick, parked, catchup)
    local run = template
    run.id, run.schedule, run.tick, run.due_at, run.created_at = tick.run_id, row.name, tick.tick, tick.due_at, now
    run.parked = parked or nil
    run.is_catchup = tick.is_catchup or catchup or nil
    run.missed_count = tick.missed_count ~= 0 and tick.missed_count or nil
    return setmetatable(run, RUN)
end

-- Why the next tick may not become a run: its place, then the limit, then the unique key, then the guard.
local function refusal(row, template, verdict, tick)
    if verdict.in_the_way then
        return 'overlap'
    end
    if is_used_up(row) then
        return 'limit'
    end
    if template.unique and call('HEXISTS', NS .. 'unique', template.unique) == 1 then
        return 'unique'
    end
    if template.guard and not takes_slot(template.guard, row.name, tick.tick) then
        return 'guard'
    end
    return nil
end

-- Adds a tick to the newest of the gaps, or begins another if a run or another reason came between.
local function note_refused(refused, tick, reason)
    local newest = refused[#refused]
    if newest and newest.reason == reason and not refused.is_broken then
        newest.last, newest.count = tick, newest.count + 1
    else
        table.insert(refused, {first = tick, last = tick, count = 1, reason = reason})
    end
    refused.is_broken = false
end

-- The plan's ticks become runs or are refused, oldest first; several are a catch-up.
local function place_ticks(row, plan)
    local raw = call('HGET', NS .. 'templates', row.name)
    local catchup = #plan.ticks > 1
    local result, refused = {created = 0, skipped = 0, superseded = {}, cancelled = {}}, {}
    for _, tick in ipairs(plan.ticks) do
        if not exists(tick.run_id) then  -- the second belt of G1: this tick's run is on record
            local verdict = admit(row, row.overlap, catchup)
            local template = cmsgpack.unpack(raw)
            local reason = refusal(row, template, verdict, tick)
            if reason then
                result.skipped, result.reason = result.skipped + 1, reason
                note_refused(refused, tick.tick, reason)
            else
                make_room(row, verdict)
                local run = tick_run(template, row, tick, verdict.parked, catchup)
                save(run)
                table.insert(created, run)
                refused.is_broken = true
                result.created = result.created + 1
                row.created_count = row.created_count + 1
                for _, gone in ipairs(verdict.superseded) do
                    table.insert(result.superseded, gone.id)
                end
                if verdict.asked_to_stop then
                    table.insert(result.cancelled, verdict.asked_to_stop.id)
                end
            end
        end
    end
    return result, refused
end

local function is_plain(result, plan)
    return result.created == #plan.ticks and #result.superseded == 0 and #result.cancelled == 0
end

local function note(place, outcome, result)
    result = result or {}
    result.place, result.outcome = place, outcome
    table.insert(odd, result)
end

-- The last that is written of a plan: from here on its ticks are settled.
local function move_cursor(row, plan, fired)
    local next_at = not is_used_up(row) and plan.next_at or nil
    row.cursor, row.fire_id, row.writes_later = plan.cursor, args.fire_id, false
    call('HSET', row.key, 'heads', table.concat(row.heads, ' '), 'created_count', int(row.created_count),
        'fire_id', args.fire_id, 'fired', fired, 'next_at', next_at or '', 'cursor', plan.cursor)
    if next_at then
        call('ZADD', NS .. 'due', next_at, row.name)
    else
        call('ZREM', NS .. 'due', row.name)
    end
end

local function fire_plan(place, plan, row)
    row.writes_later = true
    local result, refused, fired = {created = 0, superseded = {}, cancelled = {}}, {}, ''
    if #plan.ticks > 0 then
        result, refused = place_ticks(row, plan)
    end
    for _, gap in ipairs(plan.gaps) do
        record_gap(row.name, gap, plan.seen)
    end
    for _, gap in ipairs(refused) do
        record_gap(row.name, gap, plan.seen)
    end
    if not is_plain(result, plan) then
        fired = cmsgpack.pack(result)
        note(place, 'fired', result)
    end
    move_cursor(row, plan, fired)
end

-- The firing that this call repeats (G7): its result, and its leases while they are held.
local function repeat_plan(place, plan, row)
    local fired = call('HGET', row.key, 'fired')
    if fired and fired ~= '' then
        note(place, 'fired', cmsgpack.unpack(fired))
    end
    local claim = args.claim
    if not claim then
        return
    end
    for _, tick in ipairs(plan.ticks) do
        local run = load(tick.run_id)
        local is_held = run and run.state == 'running'
        if is_held and run.worker == claim.worker and run.claim_id == claim.claim_id then
            table.insert(held, run)
        end
    end
end

for place, plan in ipairs(args.plans) do
    local row = schedule(plan.name)
    if row and row.fire_id == args.fire_id and row.revision == plan.revision and row.cursor == plan.cursor then
        repeat_plan(place, plan, row)
    elseif not row or row.status ~= 'active' or row.revision ~= plan.revision or row.cursor ~= plan.seen
        or is_outdone(plan.zones) then
        note(place, 'stale')
    elseif tonumber(plan.cursor) > now then
        note(place, 'early')
    else
        fire_plan(place, plan, row)
    end
end

local leases, till = {}, 0
if args.claim then
    local own, wanted = terms(args.claim), {}
    for _, run in ipairs(created) do
        if run.state == 'pending' and not run.parked and run.due_at <= now and own.wants(run.task, run.queue) then
            table.insert(wanted, run)
        end
    end
    sort_claims(wanted, own)
    local taken = 0
    for _, run in ipairs(wanted) do
        if taken >= args.claim.limit then
            break
        end
        if own.takes(run.task, run.queue) then
            lease(run, args.claim)
            table.insert(held, run)
            taken = taken + 1
        end
    end
    if #held > 0 then
        till = renew(args.claim.worker, args.claim.lease_for)
        sort_claims(held, own)
    end
end
settle()

local answer = {cmsgpack.pack({now = now, lease_until = till, odd = odd})}
for _, run in ipairs(held) do
    table.insert(answer, cmsgpack.pack(run))
end
return answer
