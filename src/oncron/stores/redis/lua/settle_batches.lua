-- include: batches
--
-- settle_batches: looks at batches and calls back what is due.
--
-- args     ids [id] or absent (all that are unsettled), after, limit
-- returns  [BatchRecord]

local ids = {}
if args.ids then
    local seen = {}
    for _, id in ipairs(args.ids) do
        if not seen[id] and is_before(args.after, id) then
            seen[id] = true
            table.insert(ids, id)
        end
    end
    table.sort(ids, is_before)
else
    local from = args.after == '' and '-' or '(' .. args.after
    ids = call('ZRANGEBYLEX', NS .. 'unsettled', from, '+', 'LIMIT', 0, args.limit)
end
local found, answer = {}, {}
for _, id in ipairs(ids) do
    if #found < args.limit and call('EXISTS', NS .. 'batch:' .. id) == 1 then
        table.insert(found, id)
    end
end
for _, id in ipairs(found) do
    settle_batch(id)
end
settle()
for _, id in ipairs(found) do
    table.insert(answer, counted(batch(id)))
end
return answer
