-- include: base
--
-- unheld: a page of the active schedules of code that changed before an instant and that no set noted since
-- declares. Forgets sets that were noted last before it.
--
-- args     before, after (name), page
-- returns  [the last name looked at, or '' at the end, name, ...]

for _, id in ipairs(call('ZRANGEBYSCORE', NS .. 'sets', '-inf', '(' .. int(args.before))) do
    call('DEL', NS .. 'set:' .. id)
    call('ZREM', NS .. 'sets', id)
end
local sets = call('ZRANGE', NS .. 'sets', 0, -1)

local function is_held(name)
    for _, id in ipairs(sets) do
        if call('SISMEMBER', NS .. 'set:' .. id, name) == 1 then
            return true
        end
    end
    return false
end

local from = args.after == '' and '-' or '(' .. args.after
local names = call('ZRANGEBYLEX', NS .. 'schedules', from, '+', 'LIMIT', 0, args.page)
local answer = {#names == args.page and names[#names] or ''}
for _, name in ipairs(names) do
    local row = call('HMGET', NS .. 'schedule:' .. name, 'status', 'origin', 'changed_at')
    if row[1] == 'active' and row[2] == 'code' and tonumber(row[3]) < args.before and not is_held(name) then
        table.insert(answer, name)
    end
end
return answer
