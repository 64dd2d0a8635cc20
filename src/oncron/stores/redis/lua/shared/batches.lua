-- include: enqueueing
--
-- Batches: what they count is counted in the step that changes a run.
--
--   batch:ID           the row as msgpack, without counts
--   batches            zset of ids by created_at
--   batches-complete   zset of ids by completed_at
--   unsettled          zset by id of those that are not complete or had a run re-opened since
--   batch-in:ID        set of its child batches

local function batch(id)
    local raw = call('GET', NS .. 'batch:' .. id)
    return raw and cmsgpack.unpack(raw) or nil
end

local function write_batch(row)
    call('SET', NS .. 'batch:' .. row.id, cmsgpack.pack(row))
end

local function runs_by_state(id)
    local flat, states = call('HGETALL', NS .. 'batch-states:' .. id), {}
    for place = 1, #flat, 2 do
        states[flat[place]] = tonumber(flat[place + 1])
    end
    return states
end

local function call_back(new)
    if new and may_write(new) then
        enqueue_one(new)
    end
end

-- Whether all that it counts has ended; whether all of that went well.
local function judge_batch(row, states)
    local quiet = row.closed and not states.pending and not states.running
    local well = not states.failed and not states.lost and not states.cancelled
    for _, id in ipairs(call('SMEMBERS', NS .. 'batch-in:' .. row.id)) do
        local child = batch(id)
        if child then
            quiet = quiet and child.completed_at
            well = well and child.succeeded_at
        end
    end
    return quiet and true, quiet and well and true
end

local function settle_batch(id)
    local row = batch(id)
    while row and not row.succeeded_at do
        local states = runs_by_state(row.id)
        local died = not row.died_at and (states.failed or states.lost)
        local quiet, well = judge_batch(row, states)
        local completes = quiet and not row.completed_at
        if died then
            row.died_at = now
        end
        if completes then
            row.completed_at = now
        end
        if well then
            row.succeeded_at = now
        end
        if died then
            call_back(row.on_death)
        end
        if completes then
            call('ZADD', NS .. 'batches-complete', now, row.id)
            call_back(row.on_complete)
        end
        if well then
            call_back(row.on_success)
        end
        write_batch(row)
        if quiet then
            call('ZREM', NS .. 'unsettled', row.id)
        end
        row = (completes or well) and row.parent and batch(row.parent) or nil
    end
end

-- Forgets the batch; its runs stay.
local function forget_batch(row)
    for _, index in ipairs({'batches', 'batches-complete', 'unsettled'}) do
        call('ZREM', NS .. index, row.id)
    end
    for _, key in ipairs({'batch:', 'batch-states:', 'batch-in:'}) do
        call('DEL', NS .. key .. row.id)
    end
    if row.parent then
        call('SREM', NS .. 'batch-in:' .. row.parent, row.id)
    end
end

-- The answer's form: the row, its counts, its incomplete children.
local function counted(row)
    row.runs = runs_by_state(row.id)
    row.children = 0
    for _, id in ipairs(call('SMEMBERS', NS .. 'batch-in:' .. row.id)) do
        local child = batch(id)
        if child and not child.completed_at then
            row.children = row.children + 1
        end
    end
    if next(row.runs) == nil then
        row.runs = nil
    end
    return cmsgpack.pack(row)
end
