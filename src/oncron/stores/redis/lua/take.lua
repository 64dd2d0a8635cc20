-- include: limiters
--
-- take: grants a cost if the rule allows it now, and counts it, once for a nonce (G7).
--
-- args     a Take
-- returns  a Taken

-- Longer than it counts: else a clock that goes back a little would grant it anew.
local LONGER = 60000000

local own = limiter(args.limiter, args.rule)
forget_takes(own)
local known = call('HEXISTS', NS .. 'costs:' .. own.name, args.nonce) == 1
local verdict, empty_at
local lasts = 0
if known then
    verdict = said(own)
else
    verdict, empty_at = judge(own, args.cost)
    if verdict.granted then
        own.empty_at = empty_at
        lasts = now + math.max(own.rule.per + LONGER, args.keep_for)
        call('ZADD', NS .. 'takes:' .. own.name, now, args.nonce)
        call('ZADD', NS .. 'takes-until:' .. own.name, lasts, args.nonce)
        write_cost(own.name, args.nonce, args.cost, empty_at)
        if now > own.since then
            own.total = own.total + args.cost
        end
    end
end
write_limiter(own, lasts)
return {cmsgpack.pack(verdict)}
