-- include: keys
--
-- drop: deletes a stretch of the namespace's keys.
--
-- args     at: where to go on, '0' at first
-- returns  where to go on, '0' at the end

local found = call('SCAN', args.at, 'MATCH', NS .. '*', 'COUNT', 1000)
for _, key in ipairs(found[2]) do
    call('UNLINK', key)
end
return found[1]
