-- include: leases
--
-- workers: those on record. Writes nothing.
--
-- returns  [WorkerRecord], in no order

local flat, found = call('HGETALL', NS .. 'workers'), {}
for place = 1, #flat, 2 do
    local row = cmsgpack.unpack(flat[place + 1])
    row.lease_until = lease_until(flat[place]) or 0
    table.insert(found, row)
end
return {cmsgpack.pack(found)}
