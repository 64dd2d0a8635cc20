-- include: batches
--
-- mark_batch: closes or invalidates a batch. Closing settles it at once.
--
-- args     id, closed, invalid
-- returns  [BatchRecord], or [] if there is none

local row = batch(args.id)
if not row then
    return {}
end
row.closed, row.invalid = row.closed or args.closed, row.invalid or args.invalid
write_batch(row)
if args.closed then
    settle_batch(row.id)
end
settle()
return {counted(batch(row.id))}
