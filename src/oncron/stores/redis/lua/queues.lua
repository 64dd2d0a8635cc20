-- include: queues
--
-- queues: those that have open runs or are paused. Writes nothing.
--
-- returns  [QueueRecord], in no order

local names = set_of(call('SMEMBERS', NS .. 'paused'))
for _, field in ipairs(call('HKEYS', NS .. 'counts')) do
    if string.sub(field, 1, 2) == 'o ' then
        names[string.sub(field, 3)] = true
    end
end
local lanes, found = lanes_by_queue(), {}
for name in pairs(names) do
    table.insert(found, counted_queue(name, lanes[name] or {}))
end
return {cmsgpack.pack(found)}
