-- include: leases
--
-- poll: the one idle question (G9). Writes nothing.
--
-- args     tasks [name], queues [name] or absent
-- returns  a Poll

local GRACE, DROPPED_AFTER = 20000000, 60000000

local function is_reapable()
    for _, worker in ipairs(call('ZRANGEBYSCORE', NS .. 'leases', '-inf', int(now))) do
        if call('EXISTS', NS .. 'held:' .. worker) == 1 then
            return true
        end
        if call('HEXISTS', NS .. 'workers', worker) == 1 and lease_until(worker) < now - DROPPED_AFTER then
            return true
        end
    end
    return false
end

local firing = {}
for _, worker in ipairs(call('ZRANGEBYSCORE', NS .. 'leases', '(' .. int(now - GRACE), '+inf')) do
    local raw = call('HGET', NS .. 'workers', worker)
    if raw and set_of(cmsgpack.unpack(raw).roles).scheduler then
        table.insert(firing, worker)
    end
end
return {cmsgpack.pack({
    now = now,
    version = tonumber(call('HGET', KEYS[1], 'version') or 0),
    next_tick_at = number(call('ZRANGE', NS .. 'due', 0, 0, 'WITHSCORES')[2]),
    next_due_at = next_due(terms(args)),
    workers = firing,
    expired = is_reapable(),
})}
