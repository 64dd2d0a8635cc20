-- include: limiters
--
-- settle: puts the true cost in the place of what a granted take estimated. It is not refused.
--
-- args     limiter, nonce, cost
-- returns  [a Taken], or [] if the nonce is not remembered

local own = limiter(args.limiter)
local cost, take_empty_at = cost_of(args.limiter, args.nonce)
if not cost then
    return {}
end
local later = 0
if own.rule.kind == 'bucket' then
    -- What it has drained by now is not given back: others came after it.
    later = math.max(poured(own.rule, args.cost) - poured(own.rule, cost), -math.max(0, take_empty_at - now))
end
write_cost(own.name, args.nonce, args.cost, take_empty_at + later)
if tonumber(call('ZSCORE', NS .. 'takes:' .. own.name, args.nonce)) > own.since then
    own.total = own.total + args.cost - cost
end
own.empty_at = own.empty_at + later
local verdict = said(own)
write_limiter(own, 0)
return {cmsgpack.pack(verdict)}
