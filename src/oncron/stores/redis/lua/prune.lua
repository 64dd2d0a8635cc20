-- include: batches gaps locks limiters
--
-- prune: deletes at most `limit` old batches, ended runs and gaps. Never a cursor, never an open run.
--
-- args     ended_before, failed_before, keep_failed, limit
-- returns  how many
--
-- prune-at is a hash state -> how many of the oldest that ended so were looked at and kept: the next call
-- goes on there, and in the end begins anew.

local AT_ONCE, AN_HOUR = 1000, 3600000000
local left = args.limit

-- Complete for long, without an open run, and in no batch on record.
local function old_batches()
    local found = {}
    for _, id in ipairs(call('ZRANGEBYSCORE', NS .. 'batches-complete', '-inf', '(' .. int(args.failed_before))) do
        local states, row = runs_by_state(id), batch(id)
        if #found < left and not states.pending and not states.running and not (row.parent and batch(row.parent)) then
            table.insert(found, row)
        end
    end
    return found
end

local function prune_batches()
    for _, row in ipairs(old_batches()) do
        forget_batch(row)
        left = left - 1
    end
end

-- The failed and lost ones that are too many, the oldest first; those of a batch on record count but stay.
local function prune_surplus()
    local failed, lost = NS .. 'state:failed', NS .. 'state:lost'
    local surplus = call('ZCARD', failed) + call('ZCARD', lost) - args.keep_failed
    if surplus <= 0 then
        return
    end
    local a = call('ZRANGE', failed, 0, math.min(surplus, AT_ONCE) - 1, 'WITHSCORES')
    local b = call('ZRANGE', lost, 0, math.min(surplus, AT_ONCE) - 1, 'WITHSCORES')
    local i, j = 1, 1
    for _ = 1, math.min(surplus, AT_ONCE) do
        local x, y = tonumber(a[i + 1]), tonumber(b[j + 1])
        local id
        if a[i] and (not b[j] or x < y or x == y and a[i] < b[j]) then
            id, i = a[i], i + 2
        else
            id, j = b[j], j + 2
        end
        local run = load_or_set_aside(id, 'ZREM', NS .. 'runs', id)
        if run and left > 0 and not has_batch(run) then
            forget(run)
            left = left - 1
        end
    end
end

-- Of those that ended so before the instant: none was created later, but for a clock that was set back, for which
-- an hour more is looked through. What ended long after it was created, and what belongs to a batch on record, stands
-- in front of younger ones and stays.
local function prune_runs(state, before)
    local index, kept = NS .. 'state:' .. state, tonumber(call('HGET', NS .. 'prune-at', state) or 0)
    local most = math.max(AT_ONCE, left)
    local ids = call('ZRANGEBYSCORE', index, '-inf', '(' .. int(before + AN_HOUR), 'LIMIT', kept, most)
    local seen = 0
    for _, id in ipairs(ids) do
        if left <= 0 then
            break
        end
        seen = seen + 1
        local run = load_or_set_aside(id, 'ZREM', index, id)
        if run and run.ended_at < before and not has_batch(run) then
            forget(run)
            left = left - 1
        elseif run then
            kept = kept + 1
        end
    end
    if seen == #ids and #ids < AT_ONCE then
        kept = 0
    end
    if kept > 0 then
        call('HSET', NS .. 'prune-at', state, int(kept))
    else
        call('HDEL', NS .. 'prune-at', state)
    end
end

-- Gaps of a schedule grow older in the order of its list.
local function prune_gaps()
    local before = '(' .. int(args.ended_before)
    for _, name in ipairs(call('ZRANGEBYSCORE', NS .. 'gap-ages', '-inf', before, 'LIMIT', 0, left)) do
        local list = NS .. 'gaps:' .. name
        local raw = call('LINDEX', list, 0)
        while raw and left > 0 and gap_age(cmsgpack.unpack(raw)) < args.ended_before do
            call('LPOP', list)
            left = left - 1
            raw = call('LINDEX', list, 0)
        end
        if raw then
            call('ZADD', NS .. 'gap-ages', gap_age(cmsgpack.unpack(raw)), name)
        else
            call('ZREM', NS .. 'gap-ages', name)
        end
    end
end

forget_limiters()
forget_locks()
prune_batches()
if args.keep_failed then
    prune_surplus()
end
for _, state in ipairs({'succeeded', 'cancelled', 'skipped'}) do
    prune_runs(state, args.ended_before)
end
for _, state in ipairs({'failed', 'lost'}) do
    prune_runs(state, args.failed_before)
end
prune_gaps()
return args.limit - left
