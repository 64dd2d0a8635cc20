-- include: keys
--
-- The namespace has to be known, and of this release's major version: nothing is read or written otherwise.

local major = call('HGET', KEYS[1], 'major')
if major ~= '1' then
    return redis.error_reply('ONCRONSCHEMA ' .. (major or 'none'))
end
