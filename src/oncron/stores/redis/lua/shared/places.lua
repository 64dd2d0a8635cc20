-- include: runs
--
-- The place of a schedule (G10): who has it, who waits for it.
--
--   schedule:NAME   hash: status revision cursor next_at last_token created_count overlap limit origin
--                   created_at changed_at note digest previous, fire_id fired (of the newest firing), and
--                   heads: ids of its open serial runs that are not parked, one but for odd policies
--   definitions     hash name -> the definition as JSON, without what is null
--   templates       hash name -> what of it becomes a run's, as msgpack

local FIELDS = {'status', 'revision', 'cursor', 'created_count', 'overlap', 'limit', 'heads', 'fire_id'}
local schedules = {}

-- The schedule's row as this script sees it; `writes_later` if its writer writes the heads with the rest. Numbers are
-- text but for created_count and limit; nil if there is none.
local function schedule(name)
    local known = schedules[name]
    if known ~= nil then
        return known or nil
    end
    local row = call('HMGET', NS .. 'schedule:' .. name, unpack(FIELDS))
    if not row[1] then
        schedules[name] = false
        return nil
    end
    known = {
        key = NS .. 'schedule:' .. name, name = name, status = row[1], revision = row[2], cursor = row[3],
        created_count = tonumber(row[4]), overlap = row[5], limit = number(row[6]), heads = {},
        fire_id = row[8],
    }
    if row[7] and row[7] ~= '' then
        for id in string.gmatch(row[7], '%S+') do
            table.insert(known.heads, id)
        end
    end
    schedules[name] = known
    return known
end

rehead = function(name, id, is_head)
    local row = schedule(name)
    if is_head then
        table.insert(row.heads, id)
    else
        for place, head in ipairs(row.heads) do
            if head == id then
                table.remove(row.heads, place)
                break
            end
        end
    end
    if not row.writes_later then
        call('HSET', row.key, 'heads', table.concat(row.heads, ' '))
    end
end

local function is_used_up(row)
    return row.limit ~= nil and row.created_count >= row.limit
end

local FREE = {superseded = {}, parked = false}

-- The first in tick order of those that wait and may not be superseded: they have started, or belong to a
-- catch-up, all of which were meant to run.
local function firmly_waiting(line)
    local found
    local function consider(run)
        if run and (not found or position(run) < position(found)
            or position(run) == position(found) and line_member(run) < line_member(found)) then
            found = run
        end
    end
    for _, range in ipairs({{'-inf', '(-4e15'}, {'-4e15', '(0'}}) do
        local first = call('ZRANGEBYSCORE', line, range[1], range[2], 'LIMIT', 0, 1)[1]
        consider(first and load_or_set_aside(string.sub(first, 18), 'ZREM', line, first))
    end
    local waiting = {}
    for _, member in ipairs(call('ZRANGEBYSCORE', line, 0, '+inf')) do
        local run = load_or_set_aside(string.sub(member, 18), 'ZREM', line, member)
        if run and run.is_catchup then
            consider(run)
            break
        end
        table.insert(waiting, run)  -- nil adds nothing
    end
    return found, waiting
end

-- Unparks the next in line if nobody has the place. Returns what was unparked.
local function fill_place(row)
    local line = NS .. 'line:' .. row.name
    while #row.heads == 0 do
        local first = call('ZRANGE', line, 0, 0)[1]
        if not first then
            return nil
        end
        local run = load_or_set_aside(string.sub(first, 18), 'ZREM', line, first)
        if run then
            run.parked = nil
            save(run)
            return run
        end
    end
end

-- Who has the place. One that cannot be read cannot have it.
local function head_of(row)
    while row.heads[1] do
        local head = load(row.heads[1])
        if head then
            return head
        end
        call('SADD', NS .. 'unreadable', row.heads[1])
        rehead(row.name, row.heads[1], false)
    end
    return fill_place(row)
end

-- How a new run meets the place.
--   in_the_way     id of the run because of which the new one is refused
--   superseded     runs that end as skipped, so that the new one waits instead
--   asked_to_stop  the head that is to stop
--   parked         whether the new one waits
local function admit(row, overlap, catchup)
    local head = overlap ~= 'allow' and #row.heads > 0 and head_of(row)
    if not head then
        return FREE
    end
    if catchup or overlap == 'queue' then
        return {superseded = {}, parked = true}
    end
    if overlap == 'skip' then
        return {in_the_way = head.id}
    end
    local firm, waiting = firmly_waiting(NS .. 'line:' .. row.name)
    if firm then
        return {in_the_way = firm.id}
    end
    local verdict = {superseded = waiting, parked = true}
    if overlap == 'cancel' and head.state == 'running' and not head.cancel_requested then
        verdict.asked_to_stop = head
    end
    return verdict
end

-- The run ends (G6) and frees its place. Returns its record's text and what got the place.
local function finish_run(run, state)
    run.state, run.ended_at, run.parked = state, now, nil
    local raw = save(run)
    return raw, run.schedule and fill_place(schedule(run.schedule)) or nil
end

local function make_room(row, verdict)
    for _, run in ipairs(verdict.superseded) do
        run.state, run.ended_at, run.parked, run.reason = 'skipped', now, nil, 'superseded'
        save(run)
        if run.tick then
            -- It no longer counts for the schedule's limit.
            row.created_count = row.created_count - 1
            call('HINCRBY', row.key, 'created_count', -1)
        end
    end
    if verdict.asked_to_stop then
        verdict.asked_to_stop.cancel_requested = true
        save(verdict.asked_to_stop)
    end
end
