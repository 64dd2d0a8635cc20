-- include: leases
--
-- claim: due, unparked runs become leases, at most `limit`, queue by queue (G4, G5, G7, G10).
--
-- args     a ClaimSpec
-- returns  {now, lease_until, next_due_at}, then the runs' records in claim order

local own = terms(args)

-- What of the lane is due, fetched as it is asked for.
local function reader(lane, at_once)
    local task, queue, priority = parts(lane)
    local page, place, offset = {}, 1, 0
    local function peek()
        if place > #page then
            if offset < 0 then
                return nil
            end
            page = call('ZRANGEBYSCORE', NS .. 'ready:' .. lane, '-inf', int(now), 'WITHSCORES',
                'LIMIT', offset, at_once)
            place, offset = 1, #page < 2 * at_once and -1 or offset + at_once
        end
        local id, due = page[place], tonumber(page[place + 1] or 0)
        return id and claim_key(own, queue, priority, due, id)
    end
    return {
        lane = lane, task = task, queue = queue, peek = peek,
        next = function()
            place = place + 2
            return peek()
        end,
    }
end

-- What is to be leased, in claim order: the lanes merged. [{id, lane}]
local function first_runs(limit)
    local readers, found, lanes = {}, {}, {}
    for _, lane in ipairs(call('ZRANGEBYSCORE', NS .. 'lanes', '-inf', int(now))) do
        local task, queue = parts(lane)
        if own.wants(task, queue) and own.fits(task, queue) then
            table.insert(lanes, lane)
        end
    end
    for _, lane in ipairs(lanes) do
        local one = reader(lane, #lanes == 1 and limit or math.min(limit, 10))
        one.first = one.peek()
        if one.first then
            table.insert(readers, one)
        end
    end
    while #found < limit and #readers > 0 do
        local best = 1
        for place = 2, #readers do
            if is_sooner(readers[place].first, readers[best].first) then
                best = place
            end
        end
        local one = readers[best]
        if own.takes(one.task, one.queue) then
            table.insert(found, {id = one.first[4], lane = one.lane})
            one.first = one.next()
        else
            one.first = nil  -- its task, its queue or the fleet is full
        end
        if not one.first then
            table.remove(readers, best)
        end
    end
    return found
end

local runs = held_by_claim(args)
sort_claims(runs, own)
local texts = {}
if #runs > 0 then
    for _, run in ipairs(runs) do
        table.insert(texts, cmsgpack.pack(run))
    end
elseif args.limit > 0 then
    local unread
    repeat
        unread = false
        for _, wanted in ipairs(first_runs(args.limit - #texts)) do
            local run = load_or_set_aside(wanted.id, 'ZREM', NS .. 'ready:' .. wanted.lane, wanted.id)
            if run then
                table.insert(texts, lease(run, args))
            else
                changed_lanes[wanted.lane], unread = true, true
            end
        end
    until not unread
end
local till = #texts > 0 and renew(args.worker, args.lease_for) or lease_until(args.worker) or 0
settle()

local answer = {cmsgpack.pack({now = now, lease_until = till, next_due_at = next_due(own)})}
for _, text in ipairs(texts) do
    table.insert(answer, text)
end
return answer
