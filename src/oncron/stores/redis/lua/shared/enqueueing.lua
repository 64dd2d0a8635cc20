-- include: places
--
-- How a run comes in that is no tick's (G6, G7, G10).

local COPIED = {
    'id', 'task', 'args', 'queue', 'priority', 'retries', 'retry_delay', 'timeout', 'unique', 'guard', 'batch',
    'schedule', 'tick', 'backfill', 'reason',
}

-- The overlap policy by which it takes its schedule's place; nil: it takes none.
local function policy_of(new)
    if not new.schedule or new.backfill and not new.overlap then
        return nil
    end
    return new.overlap or schedule(new.schedule).overlap
end

-- Writes the run unless its id, its key or its place is taken. Returns a record's text, whether it is new,
-- whether its place is occupied by that run.
local function enqueue_one(new)
    local known = call('GET', NS .. 'run:' .. new.id)
    if known then
        return known, true, false
    end
    local holder = new.unique and call('HGET', NS .. 'unique', new.unique)
    if holder then
        return call('GET', NS .. 'run:' .. holder), false, false
    end
    local overlap = policy_of(new)
    local verdict = FREE
    if overlap then
        local row = schedule(new.schedule)
        verdict = admit(row, overlap, false)
        if verdict.in_the_way then
            return call('GET', NS .. 'run:' .. verdict.in_the_way), false, true
        end
        make_room(row, verdict)
    end
    local fields = {}
    for _, name in ipairs(COPIED) do
        fields[name] = new[name]
    end
    fields.due_at, fields.created_at = new.due_at or now + (new.delay or 0), now
    fields.serial = overlap ~= nil and overlap ~= 'allow'
    fields.parked = verdict.parked
    return save(new_run(fields)), true, false
end

local function takes_more(id)
    local raw = call('GET', NS .. 'batch:' .. id)
    return raw and not cmsgpack.unpack(raw).completed_at
end

-- Whether its schedule and its batch are there to take it; one on record needs neither.
local function may_write(new)
    if exists(new.id) then
        return true
    end
    return (not new.schedule or schedule(new.schedule) ~= nil) and (not new.batch or takes_more(new.batch))
end
