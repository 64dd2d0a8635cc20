-- include: keys
--
-- probe: what the server says of itself, on the very node that has the namespace. Writes nothing.
--
-- returns  INFO's text on server, replication, persistence and memory; a section that this user may not
--          read is left out

local found = {}
for _, section in ipairs({'server', 'replication', 'persistence', 'memory'}) do
    local said = redis.pcall('INFO', section)
    if type(said) == 'string' then
        table.insert(found, said)
    end
end
return table.concat(found, '\r\n')
