-- include: base
--
-- Limiters: what was granted, and what the rule says of more.
--
--   limiter:NAME    hash: kind amount per, of the rule that was asked by last; empty_at of a bucket; total, the
--                   cost of all takes later than `since`, so that nobody adds them up again
--   takes:NAME      zset of nonces by when they were granted; takes-until:NAME, by how long they are remembered
--   costs:NAME      hash nonce -> "cost empty_at": what it took, and when a bucket was to be empty after it
--   limiters        zset of names by when nothing of theirs need be remembered

-- ceil(a * b / c), exact also where a * b is not.
local function ceil_product(a, b, c)
    local whole, rest, bits = 0, 0, {}
    local a_whole, a_rest = (a - math.fmod(a, c)) / c, math.fmod(a, c)
    while b > 0 do
        table.insert(bits, math.fmod(b, 2))
        b = math.floor(b / 2)
    end
    for place = #bits, 1, -1 do
        whole, rest = 2 * whole + bits[place] * a_whole, 2 * rest
        if rest >= c then
            whole, rest = whole + 1, rest - c
        end
        rest = rest + bits[place] * a_rest
        if rest >= c then
            whole, rest = whole + 1, rest - c
        end
    end
    return rest > 0 and whole + 1 or whole
end

-- How much later the bucket is empty for a take of that cost.
local function poured(rule, cost)
    return ceil_product(cost, rule.per, rule.amount)
end

-- How much later than its amount takes a full bucket may be empty, because each take was rounded up.
local function rounded(rule)
    return math.fmod(rule.per, rule.amount) > 0 and math.min(rule.amount, poured(rule, 1)) - 1 or 0
end

-- The bucket's level now, rounded up.
local function drained(rule, empty_at)
    return ceil_product(math.max(0, empty_at - now - rounded(rule)), rule.amount, rule.per)
end

-- What a nonce took, and when the bucket was to be empty after it; nil if it is not remembered.
local function cost_of(name, nonce)
    local raw = call('HGET', NS .. 'costs:' .. name, nonce)
    if not raw then
        return nil
    end
    local cost, empty_at = string.match(raw, '^(%S+) (%S+)$')
    return tonumber(cost), tonumber(empty_at)
end

local function write_cost(name, nonce, cost, empty_at)
    call('HSET', NS .. 'costs:' .. name, nonce, int(cost) .. ' ' .. int(empty_at))
end

-- The limiter's own memory. The rule is the one of the call, or else the one asked by last.
local function limiter(name, rule)
    local row = call('HMGET', NS .. 'limiter:' .. name, 'kind', 'amount', 'per', 'empty_at', 'since', 'total')
    return {
        name = name,
        rule = rule or row[1] and {kind = row[1], amount = tonumber(row[2]), per = tonumber(row[3])},
        empty_at = tonumber(row[4] or 0), since = tonumber(row[5] or 0), total = tonumber(row[6] or 0),
    }
end

local function write_limiter(own, lasts)
    call('HSET', NS .. 'limiter:' .. own.name, 'kind', own.rule.kind, 'amount', int(own.rule.amount),
        'per', int(own.rule.per), 'empty_at', int(own.empty_at), 'since', int(own.since), 'total', int(own.total))
    call('ZADD', NS .. 'limiters', 'GT', math.max(lasts, own.empty_at), own.name)
end

local function costs_between(own, low, high)
    local total = 0
    for _, nonce in ipairs(call('ZRANGEBYSCORE', NS .. 'takes:' .. own.name, '(' .. int(low), int(high))) do
        total = total + (cost_of(own.name, nonce))
    end
    return total
end

-- The cost of what was granted after the instant. Moves the total there.
local function used_since(own, since)
    if since > own.since then
        own.total = own.total - costs_between(own, own.since, since)
    elseif since < own.since then
        own.total = own.total + costs_between(own, since, own.since)
    end
    own.since = since
    return own.total
end

-- Takes later than this instant count.
local function counts_after(rule)
    if rule.kind == 'window' then
        return now - math.fmod(now, rule.per) - 1
    end
    return now - rule.per
end

local function until_it_fits(own, too_much)
    local from, page, per = 0, 50, own.rule.per
    repeat
        local takes = call('ZRANGEBYSCORE', NS .. 'takes:' .. own.name, '(' .. int(own.since), '+inf', 'WITHSCORES',
            'LIMIT', from, page)
        for place = 1, #takes, 2 do
            too_much = too_much - cost_of(own.name, takes[place])
            if too_much <= 0 then
                local at = tonumber(takes[place + 1])
                return at + per - (own.rule.kind == 'window' and math.fmod(at, per) or 0) - now
            end
        end
        from = from + page
    until #takes < 2 * page
    return per
end

-- {granted, used, retry_in}; of a bucket also when it is empty after the step. Writes nothing.
local function judge(own, cost)
    local rule = own.rule
    if rule.kind == 'bucket' then
        local after = math.max(own.empty_at, now) + poured(rule, cost)
        local too_late = after - now - rule.per - rounded(rule)
        if too_late <= 0 then
            return {granted = true, now = now, used = drained(rule, after), retry_in = 0}, after
        end
        return {granted = false, now = now, used = drained(rule, own.empty_at), retry_in = too_late}, own.empty_at
    end
    local used = used_since(own, counts_after(rule))
    if used + cost <= rule.amount then
        return {granted = true, now = now, used = used + cost, retry_in = 0}, own.empty_at
    end
    local retry_in = until_it_fits(own, used + cost - rule.amount)
    return {granted = false, now = now, used = used, retry_in = retry_in}, own.empty_at
end

-- What is used, by a take of nothing.
local function said(own)
    return {granted = true, now = now, used = judge(own, 0).used, retry_in = 0}
end

local function forget_takes(own)
    local name = own.name
    for _, nonce in ipairs(call('ZRANGEBYSCORE', NS .. 'takes-until:' .. name, '-inf', int(now))) do
        if tonumber(call('ZSCORE', NS .. 'takes:' .. name, nonce)) > own.since then
            own.total = own.total - (cost_of(name, nonce))
        end
        call('ZREM', NS .. 'takes:' .. name, nonce)
        call('ZREM', NS .. 'takes-until:' .. name, nonce)
        call('HDEL', NS .. 'costs:' .. name, nonce)
    end
end

local function forget_limiters()
    for _, name in ipairs(call('ZRANGEBYSCORE', NS .. 'limiters', '-inf', int(now), 'LIMIT', 0, 1000)) do
        for _, key in ipairs({'limiter:', 'takes:', 'takes-until:', 'costs:'}) do
            call('DEL', NS .. key .. name)
        end
        call('ZREM', NS .. 'limiters', name)
    end
end
