-- include: locks
--
-- extend: prolongs a holder's lease; one that expired as well, unless an `acquire` has met it since.
--
-- args     name, token (text), lease_for
-- returns  [the lease's new end, as text], or [] if the lock is lost: nothing changed

local row = lock(args.name)
local _, mine = held_under(row, args.token)
if not mine then
    return {}
end
mine.lease_until = now + args.lease_for
write_lock(args.name, row)
return {int(mine.lease_until)}
