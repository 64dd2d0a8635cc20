-- include: base
--
-- get_runs: those that exist. Writes nothing.
--
-- args     ids [id]
-- returns  their records

local found = {}
for _, id in ipairs(args.ids) do
    local raw = call('GET', NS .. 'run:' .. id)
    if raw then
        table.insert(found, raw)
    end
end
return found
