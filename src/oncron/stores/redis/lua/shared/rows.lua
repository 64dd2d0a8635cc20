-- include: base
--
-- Schedules as they are read.

-- [status, revision, cursor, next_at, last_token, created_count, created_at, changed_at, note, previous,
-- definition], or [] if there is no such schedule.
local function read_row(name)
    local row = call('HMGET', NS .. 'schedule:' .. name, 'status', 'revision', 'cursor', 'next_at', 'last_token',
        'created_count', 'created_at', 'changed_at', 'note', 'previous')
    if not row[1] then
        return {}
    end
    row[11] = call('HGET', NS .. 'definitions', name)
    return row
end
