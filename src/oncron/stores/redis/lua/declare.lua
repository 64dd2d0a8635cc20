-- include: places gaps rows
--
-- declare: definitions, pause, resume, dormancy, removal (G3): one compare-and-set a change.
--
-- args     changes [{name, definition (JSON), template, overlap, limit, origin, digest, status, note, seen_revision,
--          seen_cursor, cursor (text), next_at, gaps [Gap]}]
-- returns  {now, odd}: [{place, changed, name}] of all but the new rows that were written, then for each of
--          them its row (`read_row`; empty if there is none)

local odd, rows = {}, {}

-- The open runs take their places under the policy that the schedule has now.
local function repark(row)
    local serial, runs, head = row.overlap ~= 'allow', {}, nil
    local function is_sooner(a, b)
        local x, y = rank(a), rank(b)
        return x < y or x == y and line_member(a) < line_member(b)
    end
    for _, id in ipairs(call('ZINTER', 2, NS .. 'open', NS .. 'runs-of:' .. row.name)) do
        local run = load(id)
        if run and not run.backfill then
            table.insert(runs, run)
            head = (not head or is_sooner(run, head)) and run or head
        end
    end
    for _, run in ipairs(runs) do
        if run ~= head then
            run.serial, run.parked = serial, serial
            save(run)
        end
    end
    if head then
        head.serial, head.parked = serial, false
        save(head)
    end
end

local function is_as_seen(row, change)
    if not row then
        return not change.seen_revision
    end
    return row.revision == change.seen_revision and row.cursor == change.seen_cursor
end

-- A cursor that stays where it is passes nothing, wherever that is.
local function passes_the_future(row, change)
    local stays = row and tonumber(change.cursor) <= tonumber(row.cursor)
    return tonumber(change.cursor) > now and not stays
end

local function write(row, change)
    local key, name = NS .. 'schedule:' .. change.name, change.name
    local cursor, revision, created_at = change.cursor, '1', int(now)
    local previous, status, overlap = '', nil, nil
    if row then
        local old = call('HMGET', key, 'digest', 'previous', 'created_at')
        previous = old[1] == change.digest and old[2] or old[1]
        revision, created_at, status, overlap = int(tonumber(row.revision) + 1), old[3], row.status, row.overlap
        if tonumber(row.cursor) > tonumber(cursor) then
            cursor = row.cursor
        end
    end
    for _, gap in ipairs(change.gaps) do
        record_gap(name, gap, change.seen_cursor)
    end
    call('HSET', NS .. 'definitions', name, change.definition)
    call('HSET', NS .. 'templates', name, cmsgpack.pack(change.template))
    local next_at = change.status == 'active' and change.next_at or nil
    call('HSET', key, 'status', change.status, 'overlap', change.overlap, 'origin', change.origin,
        'digest', change.digest, 'previous', previous, 'note', change.note, 'created_at', created_at,
        'changed_at', int(now), 'next_at', next_at and int(next_at) or '',
        'limit', change.limit and int(change.limit) or '')
    call('HDEL', key, 'fire_id', 'fired')
    if not row then
        call('HSET', key, 'created_count', '0', 'last_token', '0')
        call('ZADD', NS .. 'schedules', 0, name)
    end
    if next_at then
        call('ZADD', NS .. 'due', next_at, name)
    else
        call('ZREM', NS .. 'due', name)
    end
    if status ~= change.status then
        call('HINCRBY', NS .. 'statuses', change.status, 1)
        if status then
            call('HINCRBY', NS .. 'statuses', status, -1)
        end
    end
    call('HINCRBY', KEYS[1], 'version', 1)
    call('HSET', key, 'revision', revision, 'cursor', cursor)
    schedules[name] = nil
    if overlap and overlap ~= change.overlap then
        repark(schedule(name))
    end
end

for place, change in ipairs(args.changes) do
    local row = schedule(change.name)
    local may = is_as_seen(row, change) and not passes_the_future(row, change)
    if may then
        write(row, change)
    end
    if not may or row then
        table.insert(odd, {place = place, changed = may})
        table.insert(rows, read_row(change.name))
    end
end
settle()

return {cmsgpack.pack({now = now, odd = odd}), rows}
