-- include: base
--
-- register: notes that a replica declares this set now.
--
-- args     set_id, names [name] or absent
-- returns  1, or 0 if the names are absent and the set is not known: nothing was written
--
-- sets is a zset of set ids by when one was noted last; set:ID its names.

local AT_ONCE = 1000

if not args.names then
    if not call('ZSCORE', NS .. 'sets', args.set_id) then
        return 0
    end
else
    local key = NS .. 'set:' .. args.set_id
    call('DEL', key)
    for from = 1, #args.names, AT_ONCE do
        call('SADD', key, unpack(args.names, from, math.min(from + AT_ONCE - 1, #args.names)))
    end
end
call('ZADD', NS .. 'sets', now, args.set_id)
return 1
