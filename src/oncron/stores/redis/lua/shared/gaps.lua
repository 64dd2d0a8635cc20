-- include: base
--
-- Gaps (G11).
--
--   gaps:SCHEDULE   list of msgpack Gaps, the newest last
--   gap-ages        zset of schedules by when their oldest gap was last touched, or earlier

local function gap_age(gap)
    return math.max(gap.last, gap.created_at)
end

-- Extends the schedule's newest gap if that has the same reason and ends where the cursor was seen, else
-- adds one.
local function record_gap(name, gap, seen)
    local list = NS .. 'gaps:' .. name
    local raw = call('LINDEX', list, -1)
    if raw and seen then
        local newest = cmsgpack.unpack(raw)
        if newest.reason == gap.reason and int(newest.last) == seen then
            newest.last, newest.count = gap.last, newest.count + gap.count
            newest.at_least = newest.at_least or gap.at_least
            call('LSET', list, -1, cmsgpack.pack(newest))
            return
        end
    end
    gap.schedule, gap.created_at = name, now
    call('RPUSH', list, cmsgpack.pack(gap))
    call('ZADD', NS .. 'gap-ages', 'NX', gap_age(gap), name)
end
