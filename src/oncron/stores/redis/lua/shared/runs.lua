-- include: base
--
-- Runs: one msgpack text each, read and written whole, and the indexes in which a run stands.
--
--   run:ID              the record; fields that have their plain value (DEFAULTS) may be absent
--   runs                zset of ids by created_at, all on record; runs-of:SCHEDULE, of one schedule
--   open                zset by created_at of those that have not ended
--   state:STATE         zset by created_at of those that ended so
--   ready:LANE          zset by due_at: pending, not parked. A lane is one task, queue and priority
--   lanes               zset of the lanes that hold something, by the due_at of their first
--   held:WORKER         hash id -> "token claim_id", or "token claim_id !" once asked to cancel
--   line:SCHEDULE       zset of the parked ones: who starts first comes first
--   unique              hash key -> id of the open run that has it
--   unreadable          set of ids whose record could not be read: it stays as it is, out of the others' way
--   counts              hash: claims held (t TASK, q QUEUE, *) and open runs (o QUEUE)
--   batch-runs:BATCH    zset of ids by created_at; batch-states:BATCH, hash state -> how many, while the batch
--                       is on record
--
-- The heads of a schedule's place stand in its row (places.lua).

local DEFAULTS = {
    state = 'pending', args = '{}', queue = 'default', priority = 0, attempt = 0, given_back = 0, releases = 0,
    token = 0, opening = 1, serial = false, parked = false, cancel_requested = false, is_catchup = false,
    missed_count = 0,
}
local RUN = {__index = DEFAULTS}

local standings = {}  -- run -> where it stands in the indexes now
local changed_lanes = {}
local lane_firsts = {}  -- lane -> a due_at that `lanes` knows of
local count_changes = {}
local rehead          -- places.lua: (schedule, id, whether it is a head)

local function is_open(run)
    return run.state == 'pending' or run.state == 'running'
end

local function lane_of(run)
    return run.task .. '\n' .. run.queue .. '\n' .. (run.priority == 0 and '0' or int(run.priority))
end

local function position(run)
    return run.tick or run.created_at
end

-- Where a parked run stands in its line: those that run (a changed policy may leave several) first, then
-- those that have started, then by position. All three ranges are exact as doubles.
local function rank(run)
    if run.state == 'running' then
        return position(run) - 8e15
    end
    return run.attempt > 0 and position(run) - 4e15 or position(run)
end

local function line_member(run)
    return string.format('%016.0f ', run.created_at) .. run.id
end

local NOWHERE = {}

local function standing(run)
    local at = {state = run.state, unique = run.unique}
    if not is_open(run) then
        return at
    end
    at.open = true
    if run.state == 'running' then
        at.worker = run.worker
        at.lease = int(run.token) .. ' ' .. run.claim_id .. (run.cancel_requested and ' !' or '')
    elseif not run.parked then
        at.lane, at.due = lane_of(run), run.due_at
    end
    if run.serial and run.schedule then
        if run.parked then
            at.rank = rank(run)
        else
            at.head = true
        end
    end
    return at
end

-- The run of a record's text.
local function read(raw)
    local run = setmetatable(cmsgpack.unpack(raw), RUN)
    standings[run] = standing(run)
    return run
end

-- The run, or nil if there is none, or none that can be read.
local function load(id)
    local raw = call('GET', NS .. 'run:' .. id)
    if not raw then
        return nil
    end
    local readable, run = pcall(read, raw)
    return readable and run.id == id and run or nil
end

-- The run of an index's entry; if it cannot be read, the entry is removed (ZREM or HDEL) and nil returned.
local function load_or_set_aside(id, remove, index, entry)
    local run = load(id)
    if not run then
        call('SADD', NS .. 'unreadable', id)
        call(remove, index, entry)
    end
    return run
end

local function exists(id)
    return call('EXISTS', NS .. 'run:' .. id) == 1
end

local function count(field, by)
    count_changes[field] = (count_changes[field] or 0) + by
end

local function leave_lane(run, was)
    call('ZREM', NS .. 'ready:' .. was.lane, run.id)
    changed_lanes[was.lane] = true
end

local function enter_lane(run, at)
    call('ZADD', NS .. 'ready:' .. at.lane, at.due, run.id)
    if not lane_firsts[at.lane] or at.due < lane_firsts[at.lane] then
        call('ZADD', NS .. 'lanes', 'LT', at.due, at.lane)
        lane_firsts[at.lane] = at.due
    end
end

local function count_held(run, by)
    count('t ' .. run.task, by)
    count('q ' .. run.queue, by)
    count('*', by)
end

-- Whether the run belongs to a batch that is on record.
local function has_batch(run)
    return run.batch and call('EXISTS', NS .. 'batch:' .. run.batch) == 1
end

-- Counts the run in its batch under its new state, and no longer under the old one.
local function recount(run, was, state)
    if has_batch(run) then
        local key = NS .. 'batch-states:' .. run.batch
        if was and call('HINCRBY', key, was, -1) == 0 then
            call('HDEL', key, was)
        end
        if state then
            call('HINCRBY', key, state, 1)
        end
    end
    if not was then
        call('ZADD', NS .. 'batch-runs:' .. run.batch, run.created_at, run.id)
    elseif not state then
        call('ZREM', NS .. 'batch-runs:' .. run.batch, run.id)
    end
end

local function begin_open(run)
    call('ZADD', NS .. 'open', run.created_at, run.id)
    count('o ' .. run.queue, 1)
    if run.unique then
        call('HSET', NS .. 'unique', run.unique, run.id)
    end
end

local function end_open(run, was)
    call('ZREM', NS .. 'open', run.id)
    count('o ' .. run.queue, -1)
    if was.unique then
        call('HDEL', NS .. 'unique', was.unique)
    end
end

-- Writes the run and brings the indexes up to it. Returns its record's text.
local function save(run)
    local was, at = standings[run] or NOWHERE, standing(run)
    local raw = cmsgpack.pack(run)
    call('SET', NS .. 'run:' .. run.id, raw)
    if was.state == nil then
        call('ZADD', NS .. 'runs', run.created_at, run.id)
        if run.schedule then
            call('ZADD', NS .. 'runs-of:' .. run.schedule, run.created_at, run.id)
        end
    elseif not was.open and at.open then
        call('ZREM', NS .. 'state:' .. was.state, run.id)
    end
    if at.open and not was.open then
        begin_open(run)
    elseif was.open and not at.open then
        end_open(run, was)
    end
    if not at.open and (was.open or was.state == nil) then
        call('ZADD', NS .. 'state:' .. run.state, run.created_at, run.id)
    end
    if was.lane and not at.lane then
        leave_lane(run, was)
    end
    if at.lane and (at.lane ~= was.lane or at.due ~= was.due) then
        enter_lane(run, at)
    end
    if was.worker and was.worker ~= at.worker then
        call('HDEL', NS .. 'held:' .. was.worker, run.id)
        count_held(run, -1)
    end
    if at.worker and (at.worker ~= was.worker or at.lease ~= was.lease) then
        call('HSET', NS .. 'held:' .. at.worker, run.id, at.lease)
        if at.worker ~= was.worker then
            count_held(run, 1)
        end
    end
    if was.rank and not at.rank then
        call('ZREM', NS .. 'line:' .. run.schedule, line_member(run))
    elseif at.rank and at.rank ~= was.rank then
        call('ZADD', NS .. 'line:' .. run.schedule, at.rank, line_member(run))
    end
    if was.head ~= at.head then
        rehead(run.schedule, run.id, at.head)
    end
    if run.batch and was.state ~= at.state then
        recount(run, was.state, at.state)
    end
    standings[run] = at
    return raw
end

-- A new run, without the fields that say nothing.
local function new_run(fields)
    for name, plain in pairs(DEFAULTS) do
        if fields[name] == plain then
            fields[name] = nil
        end
    end
    return setmetatable(fields, RUN)
end

-- Takes an ended run off the record.
local function forget(run)
    local was = standings[run]
    call('DEL', NS .. 'run:' .. run.id)
    call('ZREM', NS .. 'runs', run.id)
    if run.schedule then
        call('ZREM', NS .. 'runs-of:' .. run.schedule, run.id)
    end
    call('ZREM', NS .. 'state:' .. was.state, run.id)
    if run.batch then
        recount(run, was.state, nil)
    end
end

-- Brings lanes and counts up to what this script did. The end of every script that saved runs.
local function settle()
    for lane in pairs(changed_lanes) do
        local first = call('ZRANGE', NS .. 'ready:' .. lane, 0, 0, 'WITHSCORES')
        if first[1] then
            call('ZADD', NS .. 'lanes', first[2], lane)
        else
            call('ZREM', NS .. 'lanes', lane)
        end
        changed_lanes[lane] = nil
    end
    for field, by in pairs(count_changes) do
        if by ~= 0 and call('HINCRBY', NS .. 'counts', field, by) == 0 then
            call('HDEL', NS .. 'counts', field)
        end
        count_changes[field] = nil
    end
end
