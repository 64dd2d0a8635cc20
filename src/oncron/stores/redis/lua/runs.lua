-- include: runs
--
-- runs: a stretch of the listing, newest first by (created_at, id). Writes nothing.
--
-- args     a RunFilter, and most: how many records may be looked through
-- returns  {more: the id to go on from, absent at the end}, then the records that match

local ENDED = set_of({'succeeded', 'failed', 'lost', 'cancelled', 'skipped'})

-- The shortest index that holds all that is wanted, and whether it holds nothing else.
local function best_index()
    local best, fields = nil, 0
    local function offer(key)
        if not best or call('ZCARD', key) < call('ZCARD', best) then
            best = key
        end
    end
    for _, field in ipairs({'schedule', 'task', 'state', 'queue', 'batch'}) do
        fields = fields + (args[field] and 1 or 0)
    end
    if args.batch then
        offer(NS .. 'batch-runs:' .. args.batch)
    end
    if args.schedule then
        offer(NS .. 'runs-of:' .. args.schedule)
    end
    if args.state then
        offer(NS .. (ENDED[args.state] and 'state:' .. args.state or 'open'))
    end
    local is_exact = fields == 0 or fields == 1 and best ~= nil and best ~= NS .. 'open'
    return best or NS .. 'runs', is_exact
end

local function matches(raw)
    local readable, run = pcall(read, raw)
    if not readable then
        return false
    end
    for _, field in ipairs({'schedule', 'task', 'state', 'queue', 'batch'}) do
        if args[field] and args[field] ~= run[field] then
            return false
        end
    end
    return true
end

-- How many of the index are older than the pair (at, id).
local function older_than(index, at, id)
    local low = call('ZCOUNT', index, '-inf', '(' .. at)
    local high = low + call('ZCOUNT', index, at, at)
    while low < high do
        local middle = math.floor((low + high) / 2)
        if is_before(call('ZRANGE', index, middle, middle)[1], id) then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

local index, is_exact = best_index()
local last
if args.before then
    local at = call('ZSCORE', NS .. 'runs', args.before)
    if not at then
        return {cmsgpack.pack({now = now})}
    end
    last = older_than(index, at, args.before) - 1
else
    last = call('ZCARD', index) - 1
end
local answer, more = {''}, nil
local first = math.max(0, last - args.most + 1)
if last >= 0 then
    local ids = call('ZRANGE', index, first, last, 'WITHSCORES')
    more = first > 0 and ids[1] or nil
    for place = #ids - 1, 1, -2 do
        if args.since and tonumber(ids[place + 1]) < args.since then
            more = nil
            break
        end
        local raw = call('GET', NS .. 'run:' .. ids[place])
        if raw and (is_exact or matches(raw)) then
            table.insert(answer, raw)
        end
        if #answer > args.limit then
            more = nil
            break
        end
    end
end
answer[1] = cmsgpack.pack({now = now, more = more})
return answer
