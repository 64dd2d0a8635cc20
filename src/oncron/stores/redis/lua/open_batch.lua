-- include: batches
--
-- open_batch: writes a batch's row (G7).
--
-- args     a NewBatch
-- returns  [BatchRecord], or [] if its parent does not exist or is complete

local row = batch(args.id)
if not row then
    if args.parent and not takes_more(args.parent) then
        return {}
    end
    row = args
    row.created_at = now
    write_batch(row)
    call('ZADD', NS .. 'batches', now, row.id)
    call('ZADD', NS .. 'unsettled', 0, row.id)
    if row.parent then
        call('SADD', NS .. 'batch-in:' .. row.parent, row.id)
    end
end
return {counted(row)}
