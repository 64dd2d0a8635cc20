-- include: places
--
-- Leases: who may execute what, until when, under which token (G4, G5, G8).
--
--   leases    zset of workers by the end of their lease
--   left      set of workers that left while something of theirs was running: it expires by their lease
--   workers   hash id -> WorkerRecord as msgpack (lease_until is in `leases`)
--   zones     zset of versions of the zone data by the end of the last lease of a scheduler that has it
--   paused    set of queues that give nothing

local function lease_until(worker)
    return number(call('ZSCORE', NS .. 'leases', worker))
end

local function note_zones(record, till)
    if record.tzdata and record.tzdata ~= '' and set_of(record.roles)['scheduler'] then
        call('ZADD', NS .. 'zones', 'GT', till, record.tzdata)
    end
end

-- The worker's lease reaches at least two thirds of lease_for past now. Returns its end.
local function renew(worker, lease_for)
    local till = lease_until(worker)
    local raw = call('HGET', NS .. 'workers', worker)
    if till == nil or till < now + math.floor(lease_for * 2 / 3) then
        till = now + lease_for
        call('ZADD', NS .. 'leases', till, worker)
        if raw then
            note_zones(cmsgpack.unpack(raw), till)
        end
    end
    if not raw then
        call('SREM', NS .. 'left', worker)
        call('HSET', NS .. 'workers', worker, cmsgpack.pack({id = worker, started_at = now}))
    end
    return till
end

-- What may be claimed under a spec: {wants(task, queue), fits(run), takes(run)}.
local function terms(spec)
    local tasks, places, room = set_of(spec.tasks), {}, {}
    if spec.queues then
        for place, queue in ipairs(spec.queues) do
            places[queue] = places[queue] or place
        end
    end
    local paused = set_of(call('SMEMBERS', NS .. 'paused'))
    local function limited(field, most)
        room[field] = most - (tonumber(call('HGET', NS .. 'counts', field) or 0) + (count_changes[field] or 0))
    end
    for _, pair in ipairs(spec.max_running or {}) do
        limited('t ' .. pair[1], pair[2])
    end
    for _, pair in ipairs(spec.queue_limits or {}) do
        limited('q ' .. pair[1], pair[2])
    end
    if spec.fleet_limit then
        limited('*', spec.fleet_limit)
    end
    local own = {}
    function own.wants(task, queue)
        return tasks[task] and (not spec.queues or places[queue]) and not paused[queue]
    end
    function own.place(queue)
        return places[queue] or 0
    end
    function own.fits(task, queue)
        return (room['t ' .. task] or 1) > 0 and (room['q ' .. queue] or 1) > 0 and (room['*'] or 1) > 0
    end
    function own.takes(task, queue)
        if not own.fits(task, queue) then
            return false
        end
        for _, field in ipairs({'t ' .. task, 'q ' .. queue, '*'}) do
            if room[field] then
                room[field] = room[field] - 1
            end
        end
        return true
    end
    return own
end

local last_tokens = {}

local function last_token(name)
    return last_tokens[name] or tonumber(call('HGET', NS .. 'schedule:' .. name, 'last_token'))
end

-- The run, leased to the worker of the spec; its record's text. The token is greater than every earlier
-- one of the run and of its schedule (G5).
local function lease(run, spec)
    local token = math.max(run.token + 1, now)
    if run.schedule then
        token = math.max(token, last_token(run.schedule) + 1)
        last_tokens[run.schedule] = token
        call('HSET', NS .. 'schedule:' .. run.schedule, 'last_token', int(token))
    end
    run.state, run.attempt, run.started_at = 'running', run.attempt + 1, run.started_at or now
    run.worker, run.claim_id, run.token, run.outcome = spec.worker, spec.claim_id, token, nil
    return save(run)
end

-- What the claim of this id took and still holds, in no order (G7).
local function held_by_claim(spec)
    local held, found = call('HGETALL', NS .. 'held:' .. spec.worker), {}
    for place = 1, #held, 2 do
        if string.find(held[place + 1], ' ' .. spec.claim_id, 1, true) then
            local run = load_or_set_aside(held[place], 'HDEL', NS .. 'held:' .. spec.worker, held[place])
            if run and run.claim_id == spec.claim_id then
                table.insert(found, run)
            end
        end
    end
    return found
end

local function order_key(due, priority)
    return due - 60000000 * priority
end

-- Where a run stands in the order of claims, for `is_sooner`.
local function claim_key(own, queue, priority, due, id)
    return {own.place(queue), order_key(due, priority), due, id}
end

local function is_sooner(a, b)
    for i = 1, 4 do
        if a[i] ~= b[i] then
            return a[i] < b[i]
        end
    end
    return false
end

-- Sorts runs as claims take them.
local function sort_claims(runs, own)
    local keys = {}
    for _, run in ipairs(runs) do
        keys[run] = claim_key(own, run.queue, run.priority, run.due_at, run.id)
    end
    table.sort(runs, function(a, b)
        return is_sooner(keys[a], keys[b])
    end)
end

local function parts(lane)
    local task, queue, priority = string.match(lane, '^(.*)\n(.*)\n(.*)$')
    return task, queue, tonumber(priority)
end

-- When the first run that the terms allow is or was due: lanes go by their first run.
local function next_due(own)
    local from, page = 0, 50
    while true do
        local lanes = call('ZRANGE', NS .. 'lanes', from, from + page - 1, 'WITHSCORES')
        for place = 1, #lanes, 2 do
            local task, queue = parts(lanes[place])
            if own.wants(task, queue) and own.fits(task, queue) then
                return tonumber(lanes[place + 1])
            end
        end
        if #lanes < 2 * page then
            return nil
        end
        from = from + page
    end
end

-- After a worker left or was dropped: whose zone data counts is read from those that are left.
local function forget_zones()
    if call('EXISTS', NS .. 'zones') == 0 then
        return
    end
    call('DEL', NS .. 'zones')
    local workers = call('HGETALL', NS .. 'workers')
    for place = 1, #workers, 2 do
        note_zones(cmsgpack.unpack(workers[place + 1]), lease_until(workers[place]) or 0)
    end
end
