-- include: runs
--
-- queues      hash name -> {paused, note, changed_at} as msgpack, of those that were paused once
-- paused      set of those that are

-- A QueueRecord. The counts are read from the lanes: an entry each of task and priority.
local function counted_queue(name, lanes)
    local raw = call('HGET', NS .. 'queues', name)
    local row = raw and cmsgpack.unpack(raw) or {}
    row.name, row.ready = name, 0
    for _, lane in ipairs(lanes) do
        local key = NS .. 'ready:' .. lane
        local ready = call('ZCOUNT', key, '-inf', int(now))
        if ready > 0 then
            local first = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
            row.ready = row.ready + ready
            row.oldest_due_at = math.min(row.oldest_due_at or first, first)
        end
    end
    row.running = tonumber(call('HGET', NS .. 'counts', 'q ' .. name) or 0)
    row.waiting = tonumber(call('HGET', NS .. 'counts', 'o ' .. name) or 0) - row.running - row.ready
    return row
end

-- queue -> its lanes
local function lanes_by_queue()
    local found = {}
    for _, lane in ipairs(call('ZRANGE', NS .. 'lanes', 0, -1)) do
        local queue = string.match(lane, '^.*\n(.*)\n.*$')
        found[queue] = found[queue] or {}
        table.insert(found[queue], lane)
    end
    return found
end
