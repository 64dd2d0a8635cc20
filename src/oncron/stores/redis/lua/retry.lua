-- include: places batches
--
-- retry: re-opens an ended run unless its key or its schedule's place is taken (G6).
--
-- args     run_id, opening
-- returns  [flag (0 not new, 1 new, 2 occupied), a run's record], or [] if there is none

local run = load(args.run_id)
if not run then
    return {}
end
if is_open(run) or args.opening and args.opening ~= run.opening then
    return {0, cmsgpack.pack(run)}
end
local row = run.schedule and not run.backfill and schedule(run.schedule)
local serial = row and row.overlap ~= 'allow' or false
local blocker = run.unique and call('HGET', NS .. 'unique', run.unique)
    or serial and #row.heads > 0 and (head_of(row) or {}).id
if blocker then
    return {2, call('GET', NS .. 'run:' .. blocker)}
end
local its_batch = run.batch and batch(run.batch)
if its_batch and not its_batch.succeeded_at then
    call('ZADD', NS .. 'unsettled', 0, run.batch)
end
run.state, run.opening, run.due_at, run.given_back = 'pending', run.opening + 1, now, run.attempt
local CLEARED = {'ended_at', 'releases', 'worker', 'cancel_requested', 'result', 'error', 'reason', 'parked'}
for _, field in ipairs(CLEARED) do
    run[field] = nil
end
run.serial = serial
local raw = save(run)
settle()
return {1, raw}
