-- include: base
--
-- stats: counts by status and state. Writes nothing.
--
-- returns  {now, schedules, runs, overdue}: pairs of what is counted and how many

local OVERDUE_AFTER = 60000000

local statuses, flat = {}, call('HGETALL', NS .. 'statuses')
for place = 1, #flat, 2 do
    table.insert(statuses, {flat[place], tonumber(flat[place + 1])})
end
local running = tonumber(call('HGET', NS .. 'counts', '*') or 0)
local runs = {{'running', running}, {'pending', call('ZCARD', NS .. 'open') - running}}
for _, state in ipairs({'succeeded', 'failed', 'lost', 'cancelled', 'skipped'}) do
    table.insert(runs, {state, call('ZCARD', NS .. 'state:' .. state)})
end
return {cmsgpack.pack({
    now = now, schedules = statuses, runs = runs,
    overdue = call('ZCOUNT', NS .. 'due', '-inf', '(' .. int(now - OVERDUE_AFTER)),
})}
