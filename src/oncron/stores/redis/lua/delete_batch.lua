-- include: batches
--
-- delete_batch: forgets a batch, and settles the one that it is in.
--
-- args     id
-- returns  1, or 0 if there is none

local row = batch(args.id)
if not row then
    return 0
end
forget_batch(row)
if row.parent then
    settle_batch(row.parent)
end
settle()
return 1
