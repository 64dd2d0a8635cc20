-- include: base
--
-- guard="slot:NAMESPACE": the tick belongs to whoever has the key of its minute, oncron or another
-- scheduler on the same server. The key lies outside of the namespace's slot: not on a cluster.

local SLOT_FOR = 3600

-- Whether the tick is ours, its key written.
local function takes_slot(guard, name, tick)
    local other = string.match(guard, '^slot:(.+)$')
    if not other then
        return true
    end
    local minute = math.floor(tick / 60000000) * 60
    local key = other .. ':periodic:' .. name .. ':' .. int(minute)
    return call('SET', key, NS, 'NX', 'EX', SLOT_FOR) and true or false
end
