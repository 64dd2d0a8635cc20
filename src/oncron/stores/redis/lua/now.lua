-- include: keys
--
-- now: the store's clock in microseconds, as text.

return int(now)
