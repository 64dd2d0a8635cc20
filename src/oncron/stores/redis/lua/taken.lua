-- include: limiters
--
-- taken: what the limiter says of a take of 1 now. Writes nothing.
--
-- args     limiter, rule
-- returns  a Taken

local own = limiter(args.limiter, args.rule)
local verdict = judge(own, 1)
verdict.used = said(own).used
return {cmsgpack.pack(verdict)}
