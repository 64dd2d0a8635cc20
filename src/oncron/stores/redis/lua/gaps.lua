-- include: base
--
-- gaps: those of a schedule that touch [since, until], newest first. Writes nothing.
--
-- args     schedule, since, till, limit, from: how many of the newest were looked at already; most
-- returns  {more: where to go on, absent at the end}, then the gaps

local list = NS .. 'gaps:' .. args.schedule
local raws = call('LRANGE', list, -args.from - args.most, -args.from - 1)
local answer = {''}
for place = #raws, 1, -1 do
    local gap = cmsgpack.unpack(raws[place])
    local touches = (not args.since or gap.last >= args.since) and (not args.till or gap.first <= args.till)
    if touches and #answer <= args.limit then
        table.insert(answer, raws[place])
    end
end
answer[1] = cmsgpack.pack({more = #raws == args.most and args.from + #raws or nil, now = now})
return answer
