-- include: locks
--
-- locks: live holders. Writes nothing.
--
-- returns  [LockRecord] by name and token

local found = {}
for _, name in ipairs(call('ZRANGE', NS .. 'locks', 0, -1)) do
    for _, holder in ipairs(lock(name).holders) do
        if holder.lease_until > now then
            holder.name = name
            table.insert(found, holder)
        end
    end
end
table.sort(found, function(a, b)
    if a.name ~= b.name then
        return is_before(a.name, b.name)
    end
    return a.token < b.token
end)
return {cmsgpack.pack(found)}
