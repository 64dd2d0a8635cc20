-- include: batches gaps locks limiters
--
-- prune: deletes at most `limit` old batches, ended runs and gaps. Never a cursor, never an open run.
--
-- args     ended_before, failed_before, keep_failed, limit
-- returns  how many
--
-- released is a hash of batches that are gone -> how many of their runs, the oldest, have no age yet.

local AT_ONCE = 1000
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
        call('HSET', NS .. 'released', row.id, call('ZCARD', NS .. 'batch-runs:' .. row.id))
        for _, index in ipairs({'batches', 'batches-complete', 'unsettled'}) do
            call('ZREM', NS .. index, row.id)
        end
        for _, key in ipairs({'batch:', 'batch-states:', 'batch-in:'}) do
            call('DEL', NS .. key .. row.id)
        end
        left = left - 1
    end
end

-- The runs of pruned batches get an age like others, the newest first: what is deleted meanwhile moves none
-- of those that are still to come.
local function release_runs()
    local flat, most = call('HGETALL', NS .. 'released'), AT_ONCE
    for place = 1, #flat, 2 do
        local id, last = flat[place], tonumber(flat[place + 1])
        local first = math.max(0, last - most)
        if most > 0 and last > 0 then
            for _, run_id in ipairs(call('ZRANGE', NS .. 'batch-runs:' .. id, first, last - 1)) do
                local run = load(run_id)
                call('ZADD', age_index(run.state), run.ended_at, run_id)
            end
        end
        most = most - (last - first)
        if first > 0 then
            call('HSET', NS .. 'released', id, first)
        else
            call('HDEL', NS .. 'released', id)
        end
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
        local run = load(id)
        if left > 0 and not has_batch(run) then
            forget(run)
            left = left - 1
        end
    end
end

local function prune_runs(index, before)
    local ids = call('ZRANGEBYSCORE', NS .. index, '-inf', '(' .. int(before), 'LIMIT', 0, left)
    for _, id in ipairs(ids) do
        forget(load(id))
    end
    left = left - #ids
end

-- Gaps of a schedule grow older in the order of its list.
local function prune_gaps()
    for _, name in ipairs(call('ZRANGEBYSCORE', NS .. 'gap-ages', '-inf', '(' .. int(args.ended_before), 'LIMIT', 0, left)) do
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
release_runs()
if args.keep_failed then
    prune_surplus()
end
prune_runs('ended', args.ended_before)
prune_runs('dead', args.failed_before)
prune_gaps()
return args.limit - left
