-- include: limiters
--
-- taken: what the limiter says of a take of 1 now. Writes nothing.
--
-- args     limiter, rule
-- returns  a Taken

local own = limiter(args.limiter, args.rule)
local verdict = judge(own, 1)
if verdict.granted and own.rule.kind ~= 'bucket' then
    verdict.used = verdict.used - 1
else
    verdict.used = said(own).used
end
return {cmsgpack.pack(verdict)}
