-- include: base
--
-- Locks (G5, G7).
--
--   lock:NAME   {token, the last one given; holders [{owner, token, since, lease_until}]} as msgpack
--   locks       zset of names by their last token

local DAY = 86400000000

local function lock(name)
    local raw = call('GET', NS .. 'lock:' .. name)
    return raw and cmsgpack.unpack(raw) or {token = 0, holders = {}}
end

local function write_lock(name, row)
    call('SET', NS .. 'lock:' .. name, cmsgpack.pack(row))
    call('ZADD', NS .. 'locks', row.token, name)
end

local function held_under(row, token)
    for place, holder in ipairs(row.holders) do
        if int(holder.token) == token then
            return place, holder
        end
    end
end

-- Those that nobody has held for a day: a new token is never below the clock.
local function forget_locks()
    for _, name in ipairs(call('ZRANGEBYSCORE', NS .. 'locks', '-inf', '(' .. int(now - DAY), 'LIMIT', 0, 1000)) do
        local idle = true
        for _, holder in ipairs(lock(name).holders) do
            idle = idle and holder.lease_until < now - DAY
        end
        if idle then
            call('DEL', NS .. 'lock:' .. name)
            call('ZREM', NS .. 'locks', name)
        end
    end
end
