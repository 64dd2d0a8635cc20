-- What every script begins with.
--
-- KEYS[1]   {namespace}:meta. All keys of a namespace begin alike and carry its hash tag, so on a cluster
--           they lie in one slot; scripts make the other names themselves.
-- ARGV[1]   the instant that a test gives, in microseconds, or '' for the server's own clock
-- ARGV[2]   a msgpack map of what the method was given; a field that is None is absent
--
-- Numbers are doubles here: instants are exact until the year 2255. Lua's own conversion to text keeps 14
-- digits only, so they become text by `int`. Integers that are compared for equality (revision, cursor)
-- come and stay as text.
--
-- A script looks and judges before it writes; per item it writes records first and what lets others
-- pass, the cursor, last.

local NS = string.sub(KEYS[1], 1, -5)
local call = redis.call
local args = cmsgpack.unpack(ARGV[2])

local function int(number)
    return string.format('%.0f', number)
end

local function number(text)
    return text and tonumber(text) or nil
end

local function clock()
    if ARGV[1] ~= '' then
        return tonumber(ARGV[1])
    end
    local time = call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- As a set. The argument may be nil: an empty one.
local function set_of(list)
    local set = {}
    for _, each in ipairs(list or {}) do
        set[each] = true
    end
    return set
end

-- Whether a comes before b, by bytes as sorted sets do it: `<` goes by the server's locale.
local function is_before(a, b)
    local most = math.min(#a, #b)
    for i = 1, most do
        local x, y = string.byte(a, i), string.byte(b, i)
        if x ~= y then
            return x < y
        end
    end
    return #a < #b
end

local now = clock()
