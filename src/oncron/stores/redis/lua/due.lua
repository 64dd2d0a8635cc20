-- include: base
--
-- due: active schedules whose next tick is at or before the horizon, in pages. Writes nothing.
--
-- args     horizon (text), after {at (text), name}, exclude [name], limit
-- returns  [name, next_at, revision, cursor, ...], flat

local key = NS .. 'due'
local exclude = set_of(args.exclude)

-- The place of the first that comes after the pair (at, name).
local function place_after(at, name)
    local low = call('ZCOUNT', key, '-inf', '(' .. at)
    local high = low + call('ZCOUNT', key, at, at)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if is_before(name, call('ZRANGE', key, middle, middle)[1]) then
            high = middle
        else
            low = middle + 1
        end
    end
    return low
end

local from = args.after and place_after(args.after.at, args.after.name) or 0
local horizon, found = tonumber(args.horizon), {}
while #found < 4 * args.limit do
    local page = call('ZRANGE', key, from, from + args.limit - 1, 'WITHSCORES')
    for place = 1, #page, 2 do
        local name, next_at = page[place], page[place + 1]
        if tonumber(next_at) > horizon or #found >= 4 * args.limit then
            return found
        end
        if not exclude[name] then
            local row = call('HMGET', NS .. 'schedule:' .. name, 'next_at', 'revision', 'cursor')
            for _, value in ipairs({name, row[1], row[2], row[3]}) do
                table.insert(found, value)
            end
        end
    end
    if #page < 2 * args.limit then
        break
    end
    from = from + args.limit
end
return found
