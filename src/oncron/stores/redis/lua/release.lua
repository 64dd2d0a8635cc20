-- include: locks
--
-- release: lets go.
--
-- args     name, token (text)
-- returns  1, or 0 if it was not held under that token any more

local row = lock(args.name)
local place = held_under(row, args.token)
if not place then
    return 0
end
table.remove(row.holders, place)
write_lock(args.name, row)
return 1
