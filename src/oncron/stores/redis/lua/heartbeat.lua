-- include: leases
--
-- heartbeat: extends the worker's lease, and with it all that it holds (G8).
--
-- args     worker (WorkerRecord), lease_for, held [{run_id, token (text)}], reports [{run_id, token, progress,
--          checkpoint, log}]
-- returns  {now, lease_until, lost [id], cancel [id]}, then the records of the strays

local me = args.worker.id
local till = math.max(now + args.lease_for, lease_until(me) or 0)
call('ZADD', NS .. 'leases', till, me)
args.worker.lease_until = nil
call('HSET', NS .. 'workers', me, cmsgpack.pack(args.worker))
call('SREM', NS .. 'left', me)
note_zones(args.worker, till)

local mine, flat = {}, call('HGETALL', NS .. 'held:' .. me)
for place = 1, #flat, 2 do
    mine[flat[place]] = flat[place + 1]
end

-- Whether the token is that of the claim under which this worker holds the run.
local function is_mine(id, token)
    return mine[id] ~= nil and string.match(mine[id], '^%d+') == token
end

for _, report in ipairs(args.reports) do
    if is_mine(report.run_id, report.token) then
        local run = load(report.run_id)
        if run then
            run.progress, run.checkpoint = report.progress or run.progress, report.checkpoint or run.checkpoint
            run.log = report.log or run.log
            save(run)
        end
    end
end
local lost, cancel, listed = {}, {}, {}
for _, claim in ipairs(args.held) do
    if is_mine(claim.run_id, claim.token) then
        listed[claim.run_id] = true
        if string.find(mine[claim.run_id], ' !', -2, true) then
            table.insert(cancel, claim.run_id)
        end
    else
        table.insert(lost, claim.run_id)
    end
end
local answer = {cmsgpack.pack({now = now, lease_until = till, lost = lost, cancel = cancel})}
for id in pairs(mine) do
    if not listed[id] and load_or_set_aside(id, 'HDEL', NS .. 'held:' .. me, id) then
        table.insert(answer, call('GET', NS .. 'run:' .. id))
    end
end
return answer
