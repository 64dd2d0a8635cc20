-- include: batches
--
-- batches: rows, by id or a page of all, newest first. Writes nothing.
--
-- args     id; or dead, before (id), limit
-- returns  [BatchRecord]

local AT_ONCE = 100

if args.id then
    local row = batch(args.id)
    return row and {counted(row)} or {}
end
local from, answer = 0, {}
if args.before then
    local place = call('ZREVRANK', NS .. 'batches', args.before)
    if not place then
        return {}
    end
    from = place + 1
end
repeat
    local ids = call('ZREVRANGE', NS .. 'batches', from, from + AT_ONCE - 1)
    for _, id in ipairs(ids) do
        local row = batch(id)
        if #answer < args.limit and (not args.dead or row.died_at) then
            table.insert(answer, counted(row))
        end
    end
    from = from + AT_ONCE
until #ids < AT_ONCE or #answer >= args.limit
return answer
