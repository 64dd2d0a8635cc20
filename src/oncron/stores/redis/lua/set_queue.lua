-- include: queues
--
-- set_queue: pauses or resumes a queue for everybody. Repeating writes nothing.
--
-- args     name, paused, note
-- returns  a QueueRecord

local raw = call('HGET', NS .. 'queues', args.name)
local row = raw and cmsgpack.unpack(raw) or {paused = false, note = ''}
if row.paused ~= args.paused or row.note ~= args.note then
    call('HSET', NS .. 'queues', args.name, cmsgpack.pack({paused = args.paused, note = args.note, changed_at = now}))
    call(args.paused and 'SADD' or 'SREM', NS .. 'paused', args.name)
end
return {cmsgpack.pack(counted_queue(args.name, lanes_by_queue()[args.name] or {}))}
