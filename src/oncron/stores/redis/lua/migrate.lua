-- include: keys
--
-- migrate: makes the namespace known. Idempotent.
--
-- args     major, minor
-- returns  the major version on record: if that is a newer one, nothing was changed

local found = call('HGET', KEYS[1], 'major')
if found and tonumber(found) > args.major then
    return tonumber(found)
end
call('HSET', KEYS[1], 'major', args.major)
if args.minor > tonumber(call('HGET', KEYS[1], 'minor') or 0) then
    call('HSET', KEYS[1], 'minor', args.minor)
end
call('HSETNX', KEYS[1], 'version', 0)
return args.major
