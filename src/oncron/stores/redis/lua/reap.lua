-- include: leases
--
-- reap: takes runs from workers whose lease has expired (G8); drops workers that left nothing behind.
--
-- args     limit
-- returns  {now, workers [id]}, then the records of the runs as they are now

local DROPPED_AFTER, LONGEST_DELAY = 60000000, 3600000000
local WHY = 'its worker\'s lease expired'
local answer, dropped = {''}, {}

local function take_away(run)
    run.outcome = 'reaped'
    if run.cancel_requested or run.attempt - run.given_back > run.retries then
        run.reason = WHY
        return (finish_run(run, run.cancel_requested and 'cancelled' or 'lost'))
    end
    run.state, run.worker, run.releases = 'pending', nil, 0
    run.due_at = now + run.retry_delay
    run.retry_delay = math.max(run.retry_delay, math.min(2 * run.retry_delay, LONGEST_DELAY))
    return save(run)
end

for _, worker in ipairs(call('ZRANGEBYSCORE', NS .. 'leases', '-inf', int(now))) do
    for _, id in ipairs(call('HKEYS', NS .. 'held:' .. worker)) do
        if #answer > args.limit then
            break
        end
        local run = load_or_set_aside(id, 'HDEL', NS .. 'held:' .. worker, id)
        if run then
            table.insert(answer, take_away(run))
        end
    end
    local busy = call('EXISTS', NS .. 'held:' .. worker) == 1
    if not busy and lease_until(worker) < now - DROPPED_AFTER and call('HDEL', NS .. 'workers', worker) == 1 then
        call('ZREM', NS .. 'leases', worker)
        table.insert(dropped, worker)
    end
end
for _, worker in ipairs(call('SMEMBERS', NS .. 'left')) do
    if call('EXISTS', NS .. 'held:' .. worker) == 0 then
        call('ZREM', NS .. 'leases', worker)
        call('SREM', NS .. 'left', worker)
    end
end
if #dropped > 0 then
    forget_zones()
end
settle()
table.sort(dropped)
answer[1] = cmsgpack.pack({now = now, workers = dropped})
return answer
