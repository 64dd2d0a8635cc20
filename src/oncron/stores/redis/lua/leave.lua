-- include: leases
--
-- leave: forgets a worker that stopped. What it still holds expires by its old lease.
--
-- args     worker (id)
-- returns  nothing

if call('HDEL', NS .. 'workers', args.worker) == 1 then
    if call('EXISTS', NS .. 'held:' .. args.worker) == 1 then
        call('SADD', NS .. 'left', args.worker)
    else
        call('ZREM', NS .. 'leases', args.worker)
    end
end
forget_zones()
return {}
