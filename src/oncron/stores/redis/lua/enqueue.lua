-- include: enqueueing
--
-- enqueue: writes runs (G6, G7, G10), or nothing if a schedule or batch that one names is not there.
--
-- args     runs [NewRun]; check [{id, schedule, batch}]: look only whether all of these could be written
-- returns  {now, missing, batch_missing} if a schedule does not exist or a batch takes no more;
--          else {now, flags [0 not new, 1 new, 2 occupied]}, then each run's record

for _, new in ipairs(args.check or args.runs) do
    if new.schedule and not schedule(new.schedule) then
        return {cmsgpack.pack({now = now, missing = new.schedule})}
    end
    if new.batch and not may_write(new) then
        return {cmsgpack.pack({now = now, batch_missing = new.batch})}
    end
end
local flags, answer = {}, {''}
for _, new in ipairs(args.runs or {}) do
    local raw, is_new, occupied = enqueue_one(new)
    table.insert(flags, occupied and 2 or is_new and 1 or 0)
    table.insert(answer, raw)
end
settle()
answer[1] = cmsgpack.pack({now = now, flags = flags})
return answer
