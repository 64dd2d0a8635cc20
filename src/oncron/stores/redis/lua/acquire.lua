-- include: locks
--
-- acquire: holds one of the slots of a name, if fewer than that have a live holder (G5, G7).
--
-- args     name, owner, lease_for, slots
-- returns  an Acquired

local row, live, mine, first = lock(args.name), {}, nil, nil
for _, holder in ipairs(row.holders) do
    if holder.lease_until > now then
        table.insert(live, holder)
        mine = holder.owner == args.owner and holder or mine
        first = math.min(first or holder.lease_until, holder.lease_until)
    end
end
if not mine and #live < args.slots then
    row.token = math.max(row.token + 1, now)
    mine = {owner = args.owner, token = row.token, since = now}
    table.insert(live, mine)
end
if mine then
    mine.lease_until = now + args.lease_for
end
if mine or #live ~= #row.holders then
    row.holders = live
    write_lock(args.name, row)
end
return {cmsgpack.pack({
    now = now, token = mine and mine.token or nil, holders = #live,
    lease_until = mine and mine.lease_until or first or now,
})}
